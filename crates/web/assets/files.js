// The file browser: directories, and files with their blocks. Names, owners and the bytes of files are data of users.

import {
  Refused, address, ask, attempted, bytes, call, callOther, count, el, encodePath, facts, failure, notice, plural, reload, shared,
  state, table, tableRow, time, webhdfs,
} from "/ui/common.js";

/// Bytes of a preview.
const PREVIEW_BYTES = 16 * 1024;
/// Blocks that a page of a file shows.
const BLOCKS_SHOWN = 100;
/// Replicas of one DataNode that are asked for in one request.
const REPLICAS_AT_ONCE = 100;

const link = (path) => `#files${encodePath(path)}`;
const join = (directory, name) => `${directory === "/" ? "" : directory}/${name}`;
const parentOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

/// Shows the directory or file of an address.
export async function files(rest, view) {
  const path = decoded(rest);
  const status = (await call(webhdfs(path, "GETFILESTATUS")).catch((error) => {
    view.show(heading(path), failure(error), el("p", {}, el("a", { href: link("/") }, "Root directory")));
    return {};
  })).FileStatus;
  if (!status) return;
  if (status.type === "DIRECTORY") await directory(path, status, view);
  else await file(path, status, view);
}

/// Returns the path in an address, without a slash at its end.
function decoded(rest) {
  let path = rest;
  try {
    path = decodeURIComponent(rest);
  } catch {
    // Addresses of Apache's explorer may have paths that are not encoded.
  }
  path = path.replace(/\/+/g, "/").replace(/\/$/, "");
  return path.startsWith("/") ? path : "/";
}

function heading(path) {
  const parts = path.split("/").filter((part) => part !== "");
  const crumbs = parts.map((part, place) => [part, `/${parts.slice(0, place + 1).join("/")}`]);
  return [
    el("h1", {}, path),
    el("nav", { class: "crumbs", "aria-label": "Path" }, el("ol", {},
      el("li", {}, el("a", { href: link("/") }, "root")),
      crumbs.map(([part, to]) => el("li", {}, el("a", { href: link(to) }, part))))),
  ];
}

const TYPES = { DIRECTORY: "directory", FILE: "file", SYMLINK: "link" };

/// Returns `rwxr-x---` for octal digits.
function letters(permission, type) {
  const bits = Number.parseInt(permission, 8);
  const text = [6, 3, 0].map((shift) => "rwx".split("").map((letter, place) => ((bits >> shift) & (4 >> place) ? letter : "-")).join("")).join("");
  const sticky = bits & 0o1000 ? text.slice(0, 8) + (bits & 1 ? "t" : "T") : text;
  return `${{ DIRECTORY: "d", SYMLINK: "l" }[type] ?? "-"}${sticky}`;
}

async function directory(path, status, view) {
  const columns = [
    {
      title: "Name",
      name: true,
      cell: (entry) => [el("a", { href: link(join(path, entry.pathSuffix)) }, entry.pathSuffix), entry.type === "DIRECTORY" ? "/" : ""],
    },
    { title: "Type", cell: (entry) => TYPES[entry.type] ?? entry.type },
    { title: "Size", number: true, cell: (entry) => (entry.type === "FILE" ? bytes(entry.length) : plural(entry.childrenNum, "entry", "entries")) },
    { title: "Owner", cell: (entry) => `${entry.owner}:${entry.group}` },
    { title: "Permission", cell: (entry) => el("span", { class: "mono" }, letters(entry.permission, entry.type), entry.aclBit ? "+" : "") },
    { title: "Replication", number: true, cell: (entry) => (entry.type === "FILE" ? count(entry.replication) : "") },
    { title: "Modified", cell: (entry) => time(entry.modificationTime) },
    {
      title: "Actions",
      cell: (entry) => el("button", { type: "button", "aria-label": `Actions for ${entry.pathSuffix}`, onclick: () => choose(join(path, entry.pathSuffix), entry) }, "Actions"),
    },
  ];
  let last = null;
  const load = async () => {
    const { partialListing, remainingEntries } = (await call(webhdfs(path, "LISTSTATUS_BATCH", { startafter: last }))).DirectoryListing;
    const entries = partialListing.FileStatuses.FileStatus;
    last = entries.at(-1)?.pathSuffix ?? last;
    return { entries, remaining: remainingEntries };
  };
  const first = await load();
  const list = table(`Entries of ${path}`, columns, first.entries, "The directory is empty.");
  const more = el("button", { type: "button" });
  const told = (remaining) => {
    more.hidden = remaining === 0;
    more.textContent = `More (${count(remaining)})`;
  };
  told(first.remaining);
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const next = await load();
      list.querySelector("tbody").append(...next.entries.map((entry) => tableRow(columns, entry)));
      told(next.remaining);
    } catch (error) {
      more.after(failure(error));
    }
    more.disabled = false;
  });
  const uploads = el("div", { "aria-live": "polite" });
  const picker = el("input", {
    type: "file",
    multiple: true,
    class: "unseen",
    tabindex: "-1",
    "aria-hidden": "true",
    onchange: () => upload(path, [...picker.files], uploads),
  });
  const goTo = el("input", { type: "text", value: path, "aria-label": "Path to open", spellcheck: "false" });
  const locked = shared.session.readOnly;
  view.show(
    heading(path),
    el("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      location.hash = link(decoded(goTo.value.trim()));
    } }, goTo, el("button", { type: "submit" }, "Open")),
    el("div", { class: "row" },
      el("button", { type: "button", disabled: locked, onclick: () => makeDirectory(path) }, "New directory"),
      el("button", { type: "button", disabled: locked || Boolean(shared.session.requiredHeader), onclick: () => picker.click() }, "Upload files"),
      picker,
      el("button", { type: "button", onclick: () => choose(path, status) }, "Actions for this directory"),
      el("a", { class: "button", href: address("/fsck", { path, files: 1, blocks: 1, "user.name": shared.user || null }) }, "Check (fsck)")),
    shared.session.requiredHeader && el("p", { class: "quiet" },
      "Uploads from pages are off, because dfs.webhdfs.rest-csrf.enabled is true: DataNodes take no files from a page of another server."),
    locked && el("p", { class: "quiet" }, "Changes are off, because hearth.web.read-only is true."),
    uploads,
    list,
    more,
  );
}

// Changes.

/// Makes a change. Shows `then` (the same page if it is not given), or the reason why the change failed.
async function act(url, method, then) {
  try {
    const answer = await call(url, method);
    if (answer && answer.boolean === false) throw new Refused("The NameNode did not make the change. Does the destination exist, or is the source missing?", 200);
    if (then && location.hash !== then) location.hash = then;
    else reload();
  } catch (error) {
    const place = document.querySelector("main h1");
    place.parentNode.querySelector(".notice.bad")?.remove();
    place.after(failure(error));
    place.scrollIntoView({ block: "start" });
  }
}

async function makeDirectory(path) {
  const chosen = await ask({
    title: `New directory in ${path}`,
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "permission", label: "Permission, in octal digits", value: "755", pattern: "[0-7]{3,4}" },
    ],
    confirm: "Create",
  });
  if (chosen) await act(webhdfs(join(path, chosen.name), "MKDIRS", { permission: chosen.permission }), "PUT");
}

/// Offers what can be done with a file or directory.
async function choose(path, status) {
  const isFile = status.type === "FILE";
  const isRoot = path === "/";
  const items = [
    !isRoot && ["Rename or move", renameFile],
    ["Change permission", changePermission],
    ["Change owner", changeOwner],
    isFile && ["Change replication", changeReplication],
    !isRoot && ["Delete", removeFile],
  ].filter(Boolean);
  const dialog = el("dialog", { "aria-label": `Actions for ${path}` },
    el("h2", {}, path),
    shared.session.readOnly && el("p", { class: "quiet" }, "Changes are off, because hearth.web.read-only is true."),
    el("div", { class: "row" },
      isFile && el("a", { class: "button", href: downloadLink(path) }, "Download"),
      items.map(([title, change]) => el("button", {
        type: "button",
        class: change === removeFile ? "danger" : null,
        disabled: shared.session.readOnly,
        onclick: () => {
          dialog.close();
          change(path, status);
        },
      }, title)),
      el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function renameFile(path) {
  const chosen = await ask({ title: `Rename or move ${path}`, fields: [{ name: "to", label: "New path", value: path, required: true }], confirm: "Rename" });
  if (!chosen || chosen.to === path) return;
  await act(webhdfs(path, "RENAME", { destination: chosen.to }), "PUT", link(parentOf(decoded(chosen.to))));
}

async function changePermission(path, status) {
  const chosen = await ask({
    title: `Permission of ${path}`,
    fields: [{ name: "permission", label: "Octal digits", value: status.permission, required: true, pattern: "[0-7]{1,4}" }],
    confirm: "Change",
  });
  if (chosen) await act(webhdfs(path, "SETPERMISSION", { permission: chosen.permission }), "PUT");
}

async function changeOwner(path, status) {
  const chosen = await ask({
    title: `Owner of ${path}`,
    fields: [{ name: "owner", label: "Owner", value: status.owner }, { name: "group", label: "Group", value: status.group }],
    confirm: "Change",
  });
  if (chosen) await act(webhdfs(path, "SETOWNER", { owner: chosen.owner.trim() || null, group: chosen.group.trim() || null }), "PUT");
}

async function changeReplication(path, status) {
  const chosen = await ask({
    title: `Replication of ${path}`,
    fields: [{ name: "replication", label: "Number of replicas", type: "number", min: 1, max: 512, value: status.replication, required: true }],
    confirm: "Change",
  });
  if (chosen) await act(webhdfs(path, "SETREPLICATION", { replication: chosen.replication }), "PUT");
}

async function removeFile(path, status) {
  const isDirectory = status.type === "DIRECTORY";
  const chosen = await ask({
    title: `Delete ${path}?`,
    text: isDirectory ? `It has ${plural(status.childrenNum, "entry", "entries")}. It is not moved to the trash.` : `It has ${bytes(status.length)}. It is not moved to the trash.`,
    fields: isDirectory ? [{ name: "recursive", label: "with everything in it", type: "checkbox" }] : [],
    confirm: "Delete",
    danger: true,
  });
  if (chosen) await act(webhdfs(path, "DELETE", { recursive: chosen.recursive ?? false }), "DELETE", link(parentOf(path)));
}

// Bytes of files, which come from and go to DataNodes.

const downloadLink = (path) => webhdfs(path, "OPEN");

/// Returns the address of the DataNode that reads or writes, from the NameNode's answer.
async function dataAddress(url, method) {
  const { Location } = await call(url, method);
  return Location;
}

async function upload(path, chosen, progress) {
  let done = 0;
  progress.replaceChildren();
  for (const one of chosen) {
    const target = join(path, one.name);
    const line = notice("", `Uploading ${one.name}, ${bytes(one.size)}…`);
    progress.append(line);
    try {
      await uploadOne(target, one);
      line.replaceWith(notice("good", `Uploaded ${one.name}, ${bytes(one.size)}.`));
      done += 1;
    } catch (error) {
      line.replaceWith(failure(`${one.name}: ${error.message}`));
    }
  }
  // What has failed stays to be read.
  if (done === chosen.length && done > 0) reload();
}

async function uploadOne(target, one) {
  const exists = await call(webhdfs(target, "GETFILESTATUS")).then(() => true, (error) => {
    if (error.status === 404) return false;
    throw error;
  });
  if (exists) {
    const chosen = await ask({ title: `${target} exists`, text: "Replace it?", confirm: "Replace", danger: true });
    if (!chosen) throw new Refused("It exists and was not replaced.", 0);
  }
  const to = await dataAddress(webhdfs(target, "CREATE", { overwrite: exists, noredirect: true }), "PUT");
  // Without a type the browser adds no header for it, which a DataNode would not allow.
  await attempted(to, { method: "PUT", body: one.slice(0, one.size, ""), credentials: "omit" });
}

async function preview(path, status, fromEnd, place) {
  const offset = fromEnd ? Math.max(0, status.length - PREVIEW_BYTES) : 0;
  const length = Math.min(PREVIEW_BYTES, status.length);
  const from = await dataAddress(webhdfs(path, "OPEN", { offset, length, noredirect: true }), "GET");
  const answer = await attempted(from, { credentials: "omit", cache: "no-store" });
  const content = new Uint8Array(await answer.arrayBuffer());
  const title = `${fromEnd ? "Last" : "First"} ${bytes(content.length)}`;
  place.replaceChildren(el("h3", {}, title), el("pre", { tabindex: "0", "aria-label": title }, isText(content) ? new TextDecoder().decode(content) : dump(content, offset)));
}

/// Returns true if the bytes have none of the control characters that text does not have.
function isText(content) {
  return !content.some((byte) => byte < 9 || (byte > 13 && byte < 32 && byte !== 27));
}

/// Returns lines of 16 bytes: offset, digits, characters.
function dump(content, offset) {
  const lines = [];
  for (let at = 0; at < Math.min(content.length, 4096); at += 16) {
    const part = [...content.slice(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const shown = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${(offset + at).toString(16).padStart(8, "0")}  ${digits}  ${shown}`);
  }
  return lines.join("\n");
}

// A file.

async function file(path, status, view) {
  const shown = el("div", {});
  const show = (fromEnd) => preview(path, status, fromEnd, shown).catch((error) => shown.replaceChildren(failure(error)));
  const blocks = el("div", {}, el("p", { class: "quiet" }, "Loading the blocks…"));
  view.show(
    heading(path),
    el("div", { class: "row" },
      el("a", { class: "button", href: downloadLink(path) }, "Download"),
      status.length > 0 && el("button", { type: "button", onclick: () => show(false) }, "Show the beginning"),
      status.length > 0 && el("button", { type: "button", onclick: () => show(true) }, "Show the end"),
      el("button", { type: "button", onclick: () => choose(path, status) }, "Actions"),
      el("a", { class: "button", href: link(parentOf(path)) }, "Directory")),
    facts([
      ["Name", nameOf(path)],
      ["Type", TYPES[status.type] ?? status.type],
      ["Size", `${bytes(status.length)} (${count(status.length)} bytes)`],
      ["Owner", `${status.owner}:${status.group}`],
      ["Permission", `${letters(status.permission, status.type)} (${status.permission})`],
      ["Replication", count(status.replication)],
      ["Block size", bytes(status.blockSize)],
      ["Modified", time(status.modificationTime)],
      ["Read", time(status.accessTime)],
      ["Number", count(status.fileId)],
      status.symlink && ["Target", status.symlink],
    ]),
    shown,
    blocks,
  );
  try {
    await showBlocks(path, status, blocks, view);
  } catch (error) {
    blocks.replaceChildren(failure(error));
  }
}

async function showBlocks(path, status, place, view) {
  const length = Math.max(1, Math.min(status.length || 1, BLOCKS_SHOWN * status.blockSize));
  const { LocatedBlocks } = await call(webhdfs(path, "GET_BLOCK_LOCATIONS", { offset: 0, length }));
  const blocks = LocatedBlocks.locatedBlocks;
  const known = new Map();
  const key = (block, node) => `${node.storageID} ${block.block.blockId}`;
  const draw = () => place.replaceChildren(
    LocatedBlocks.isUnderConstruction ? notice("", "The file is open for writing.") : "",
    table(`Blocks${blocks.length === BLOCKS_SHOWN ? `, the first ${BLOCKS_SHOWN}` : ""}`, [
      { title: "Block", name: true, cell: (block) => el("span", { class: "mono" }, `blk_${block.block.blockId}_${block.block.generationStamp}`) },
      { title: "Offset", number: true, cell: (block) => count(block.startOffset) },
      { title: "Length", number: true, cell: (block) => bytes(block.block.numBytes) },
      { title: "State", cell: (block) => (block.locations.length === 0 ? state("bad", "missing") : block.isCorrupt ? state("bad", "corrupt") : state("good", "readable")) },
      {
        title: "Replicas",
        cell: (block) => block.locations.map((node, nth) => el("div", {}, `${node.hostName}:${node.xferPort}, ${block.storageTypes[nth] ?? "DISK"}: `,
          residency(known.get(key(block, node)), block.cachedLocations.some((one) => one.storageID === node.storageID)))),
      },
    ], blocks, "The file has no blocks."));
  draw();
  await askReplicas(blocks, known, key);
  if (view.isCurrent) draw();
}

function residency(told, isCached) {
  const cached = isCached ? ", pinned in the cache" : "";
  if (told === undefined) return el("span", { class: "quiet" }, `asking its DataNode${cached}`);
  if (told === null) return el("span", { class: "quiet" }, `unknown${cached}`);
  if (told.state !== "FINALIZED") return state("warning", `${told.state.toLowerCase().replaceAll("_", " ")}${cached}`);
  const where = told.inMemory && told.onDisk ? "in memory and on disk" : told.inMemory ? "in memory, not yet on disk" : "on disk";
  return el("span", { class: told.inMemory ? "state good" : "" }, `${where}${cached}`);
}

/// Asks the DataNodes where the bytes of the replicas are.
async function askReplicas(blocks, known, key) {
  const byNode = new Map();
  for (const block of blocks) {
    for (const node of block.locations) {
      const of = byNode.get(node.storageID) ?? { node, blocks: [] };
      of.blocks.push(block);
      byNode.set(node.storageID, of);
    }
  }
  await Promise.all([...byNode.values()].map(async ({ node, blocks: held }) => {
    const host = node.ipAddr.includes(":") ? `[${node.ipAddr}]` : node.ipAddr;
    for (let at = 0; at < held.length; at += REPLICAS_AT_ONCE) {
      const part = held.slice(at, at + REPLICAS_AT_ONCE);
      try {
        const { replicas } = await callOther(address(`http://${host}:${node.infoPort}/ui/replicas`, {
          pool: part[0].block.blockPoolId,
          blocks: part.map((block) => block.block.blockId).join(","),
        }));
        for (const block of part) known.set(key(block, node), replicas[block.block.blockId] ?? null);
      } catch {
        for (const block of part) known.set(key(block, node), null);
      }
    }
  }));
}
