// The NameNode's pages about the cluster: overview, DataNodes, problems, open files, snapshots, startup.

import {
  ask, bytes, bytesPerSecond, call, callOther, card, count, data, duration, el, encodePath, facts, failure, meter,
  milliseconds, notice, percent, perSecond, plural, reload, shared, state, table, tableRow, time, webhdfs,
} from "/ui/common.js";
import { chart, latest, meanTimes } from "/ui/chart.js";

/// Number of DataNodes asked at the same time.
const ASKED_AT_ONCE = 6;
/// Number of DataNodes whose memory the overview adds up.
const ASKED_MAX = 200;

export const fileLink = (path) => `#files${encodePath(path)}`;

/// Runs `work` for each item, a few at a time.
async function each(items, work) {
  const left = [...items];
  await Promise.all(Array.from({ length: Math.min(ASKED_AT_ONCE, left.length) }, async () => {
    while (left.length > 0) await work(left.shift());
  }));
}

/// Asks DataNodes about themselves. `known`: the answers by address, to which the new ones are added; null without an answer.
async function askDatanodes(datanodes, known) {
  await each(datanodes.filter((datanode) => datanode.web), async (datanode) => {
    try {
      const answer = await callOther(`${datanode.web}/ui/status`);
      const before = known.get(datanode.web);
      if (before && answer.uptimeMs > before.uptimeMs) {
        const seconds = (answer.uptimeMs - before.uptimeMs) / 1000;
        answer.readPerSecond = (answer.totals.readBytes - before.totals.readBytes) / seconds;
        answer.writtenPerSecond = (answer.totals.writtenBytes - before.totals.writtenBytes) / seconds;
      } else if (before) {
        answer.readPerSecond = before.readPerSecond;
        answer.writtenPerSecond = before.writtenPerSecond;
      }
      known.set(datanode.web, answer);
    } catch {
      known.set(datanode.web, null);
    }
  });
}

/// Returns the sum of a figure of the DataNodes that have answered; not a number if none has it.
function sum(known, figure) {
  const values = [...known.values()].filter(Boolean).map(figure).filter(Number.isFinite);
  return values.length > 0 ? values.reduce((all, value) => all + value, 0) : NaN;
}

export async function overview(_, view) {
  const known = new Map();
  const refresh = async () => {
    const [now, history, nodes] = await Promise.all([
      data("/ui/overview"), data("/ui/history"), data("/ui/datanodes", { state: "live", limit: ASKED_MAX }),
    ]);
    const draw = () => view.show(overviewParts(now, history, nodes, known));
    if (known.size === 0) draw();
    await askDatanodes(nodes.datanodes, known);
    draw();
  };
  await refresh();
  view.every(10, refresh);
}

function overviewParts(now, history, nodes, known) {
  const { capacity, redundancy, datanodes, cache, safeMode } = now;
  const answered = [...known.values()].filter(Boolean).length;
  const memory = { used: sum(known, (node) => node.memory.used), limit: sum(known, (node) => node.memory.limit) };
  const times = {
    times: history.times,
    series: {
      processing: meanTimes(history, "rpcProcessingNanos", "rpcCalls"),
      queue: meanTimes(history, "rpcQueueNanos", "rpcCalls"),
      sync: meanTimes(history, "journalSyncNanos", "journalSyncs"),
    },
  };
  const charts = [
    chart("Calls per second", history, [{ name: "rpcCalls", label: "calls" }], perSecond),
    chart("Time of a call", times, [{ name: "processing", label: "processing" }, { name: "queue", label: "waiting" }], milliseconds),
    chart("Time of a journal sync", times, [{ name: "sync", label: "sync" }], milliseconds),
    chart("Capacity used", history, [{ name: "used", label: "used" }], bytes),
    chart("Files and blocks", history, [{ name: "files", label: "files" }, { name: "blocks", label: "blocks" }], count),
    chart("Blocks to repair", history, [{ name: "lowRedundancy", label: "too few replicas" }, { name: "missing", label: "missing" }], count),
    chart("Open files and writers", history, [{ name: "openFiles", label: "files" }, { name: "writers", label: "writers" }], count),
    chart("Operations of DataNodes", history, [{ name: "load", label: "running" }], count),
  ];
  return [
    el("h1", {}, "Overview"),
    safeMode.on && notice("", state("warning", "Safe mode is on. "), safeMode.tip),
    redundancy.missing > 0 && notice("bad", state("bad", `${plural(redundancy.missing, "block")} without a replica. `),
      el("a", { href: "#problems" }, "Which files")),
    datanodes.dead > 0 && notice("", state("warning", `${plural(datanodes.dead, "DataNode")} ${datanodes.dead === 1 ? "is" : "are"} dead. `),
      el("a", { href: "#datanodes/dead" }, "Which, and since when")),
    now.slow.datanodes + now.slow.disks > 0 && notice("", state("warning", `${plural(now.slow.datanodes, "slow DataNode")} and ${plural(now.slow.disks, "slow disk")}. `),
      el("a", { href: "#problems" }, "Which")),
    el("div", { class: "cards" },
      card("State", safeMode.on ? state("warning", "safe mode") : state("good", now.state),
        el("p", {}, `up for ${duration((now.nowMs - now.startedMs) / 1000)}`),
        el("p", { class: "quiet" }, `Hearth ${now.version}`)),
      card("Capacity used", `${bytes(capacity.used)}`, meter(capacity.used, capacity.total),
        el("p", {}, `${percent(capacity.used, capacity.total)} of ${bytes(capacity.total)}, ${bytes(capacity.remaining)} free`)),
      card("Replicas in memory", bytes(memory.used), meter(memory.used, memory.limit),
        el("p", {}, `of ${bytes(memory.limit)}; pinned: ${plural(sum(known, (node) => node.memory.pinnedReplicas), "replica")}`),
        el("p", { class: "quiet" }, `as told by ${count(answered)} of ${plural(nodes.total, "DataNode")}`)),
      card("Centralised cache", bytes(cache.used), meter(cache.used, cache.capacity),
        el("p", {}, `of ${bytes(cache.capacity)} that DataNodes may lock`)),
      card("Throughput now", `${bytesPerSecond(sum(known, (node) => node.readPerSecond))} read`,
        el("p", {}, `${bytesPerSecond(sum(known, (node) => node.writtenPerSecond))} written, by DataNodes' sockets and streams`)),
      card("Calls now", perSecond(latest(history.series.rpcCalls)),
        el("p", {}, `processing ${milliseconds(latest(times.series.processing))}, waiting ${milliseconds(latest(times.series.queue))} on average in 10 s. `,
          el("a", { href: "#users" }, "Of which users"))),
      card("Journal now", milliseconds(latest(times.series.sync)),
        el("p", {}, "for a sync, which every change waits for")),
      card("Files", count(now.files), el("p", {}, `${plural(now.directories, "directory", "directories")}, ${plural(now.blocks, "block")}`)),
      card("Open for writing", count(now.openFiles), el("p", {}, `by ${plural(now.writers, "client")}. `, el("a", { href: "#open-files" }, "Which"))),
      card("Blocks to repair", count(redundancy.low + redundancy.missing),
        el("p", {}, `${count(redundancy.low)} with too few replicas, ${count(redundancy.missing)} missing, ${count(redundancy.corrupt)} with corrupt replicas`)),
      card("DataNodes", `${count(datanodes.live)} live`,
        el("p", {}, `${count(datanodes.dead)} dead, ${count(datanodes.stale)} silent, ${count(datanodes.decommissioning + datanodes.decommissioned)} leaving, ${count(datanodes.enteringMaintenance + datanodes.inMaintenance)} in maintenance`)),
      card("Snapshots", count(now.snapshots.snapshots), el("p", {}, `of ${plural(now.snapshots.directories, "directory", "directories")}`)),
    ),
    el("h2", {}, "Last hour"),
    el("div", { class: "cards charts" }, charts),
    el("h2", {}, "Details"),
    facts([
      ["File system", now.fileSystem],
      ["Host", now.hostName],
      ["Started", time(now.startedMs)],
      ["Compatible with", `Hadoop ${now.softwareVersion}`],
      ["Cluster", now.clusterId],
      ["Block pool", now.blockPoolId],
      ["Store", now.store.directory],
      ["Copies", `${count(redundancy.pending)} blocks being copied, ${count(redundancy.scheduled)} replicas scheduled, ${count(redundancy.pendingDeletion)} to be deleted`],
      ["Failed volumes", count(datanodes.failedVolumes)],
      ["Announced memory", `${count(now.advertised.replicas)} replicas for one-sided reads`],
    ]),
    table("Capacity by medium", [
      { title: "Medium", name: true, cell: (row) => row.medium },
      { title: "Used", number: true, cell: (row) => bytes(row.used) },
      { title: "Free", number: true, cell: (row) => bytes(row.remaining) },
      { title: "Capacity", number: true, cell: (row) => bytes(row.total) },
      { title: "DataNodes in service", number: true, cell: (row) => count(row.datanodes) },
    ], now.media, "No DataNode has reported a storage."),
  ];
}

// DataNodes.

const STATES = [
  ["live", "Live"], ["dead", "Dead"], ["decommissioning", "Leaving"], ["maintenance", "In maintenance"], ["failed-volumes", "With failed volumes"],
];
const PAGE = 100;

export async function datanodes(rest, view) {
  const [, wanted, given] = rest.split("/");
  const chosen = STATES.some(([name]) => name === wanted) ? wanted : "live";
  const offset = Math.max(0, Number.parseInt(given ?? "0", 10) || 0);
  const known = new Map();
  const filter = el("input", { type: "search", placeholder: "Host, address or rack", "aria-label": "Find DataNodes" });
  const list = el("div", {});
  const refresh = async () => {
    const answer = await data("/ui/datanodes", { state: chosen, offset, limit: PAGE, find: filter.value.trim() || null });
    // A list of volumes that is open stays as it is.
    const draw = () => list.querySelector("details[open]") ?? list.replaceChildren(...datanodeParts(answer, known, chosen, offset));
    draw();
    if (chosen !== "dead") {
      await askDatanodes(answer.datanodes.filter((datanode) => datanode.state !== "dead"), known);
      draw();
    }
  };
  filter.addEventListener("input", () => {
    clearTimeout(filter.waiting);
    filter.waiting = setTimeout(() => refresh().catch((error) => list.replaceChildren(failure(error))), 300);
  });
  view.show(
    el("h1", {}, "DataNodes"),
    el("nav", { "aria-label": "States of DataNodes" }, el("ul", {}, STATES.map(([name, title]) =>
      el("li", {}, el("a", { href: `#datanodes/${name}`, "aria-current": name === chosen ? "true" : null }, title))))),
    el("div", { class: "row" }, filter),
    list,
  );
  await refresh();
  view.every(10, refresh);
}

function datanodeState(datanode) {
  if (datanode.state === "dead") return state("bad", "dead");
  if (datanode.state === "stale") return state("warning", "silent");
  return datanode.adminState === "In Service" ? state("good", "live") : state("warning", datanode.adminState);
}

function datanodeParts(answer, known, chosen, offset) {
  const memory = (datanode) => known.get(datanode.web)?.memory;
  const columns = [
    {
      title: "DataNode",
      name: true,
      cell: (node) => [
        node.web && node.state !== "dead" ? el("a", { href: `${node.web}/` }, node.name) : node.name,
        el("div", { class: "quiet" }, `${node.address}, rack ${node.rack}, version ${node.version}`),
      ],
    },
    { title: "State", cell: datanodeState },
    {
      title: "Last contact",
      number: true,
      cell: (node) => (node.lastContactSeconds === null ? "never" : [
        `${duration(node.lastContactSeconds)} ago`,
        node.state === "dead" && el("div", { class: "quiet" }, `since ${time(Date.now() - node.lastContactSeconds * 1000)}`),
      ]),
    },
    {
      title: "Used",
      number: true,
      cell: (node) => [
        bytes(node.used), meter(node.used, node.capacity),
        el("div", { class: "quiet" }, `of ${bytes(node.capacity)}`), el("div", { class: "quiet" }, `${bytes(node.remaining)} free`),
      ],
    },
    {
      title: "In memory",
      number: true,
      cell: (node) => {
        const told = memory(node);
        return told ? [bytes(told.used), meter(told.used, told.limit), el("span", { class: "quiet" }, `of ${bytes(told.limit)}`)] : "–";
      },
    },
    { title: "Pinned", number: true, cell: (node) => [plural(memory(node)?.pinnedReplicas, "replica"), el("div", { class: "quiet" }, `${bytes(node.cacheUsed)} cached`)] },
    { title: "Blocks", number: true, cell: (node) => count(node.blocks) },
    { title: "Load", number: true, cell: (node) => count(node.load) },
    { title: "Volumes", cell: (node) => [node.failedVolumes > 0 && el("div", {}, state("bad", `${count(node.failedVolumes)} failed`)), volumeList(node)] },
  ];
  const last = Math.min(offset + PAGE, answer.total);
  const title = answer.total > PAGE ? `${count(offset + 1)} to ${count(last)} of ${count(answer.total)} DataNodes` : plural(answer.total, "DataNode");
  return [
    table(title, columns, answer.datanodes, "No DataNode is in this state."),
    answer.total > PAGE && el("div", { class: "row" },
      offset > 0 && el("a", { class: "button", href: `#datanodes/${chosen}/${Math.max(0, offset - PAGE)}` }, "Previous"),
      last < answer.total && el("a", { class: "button", href: `#datanodes/${chosen}/${offset + PAGE}` }, "Next")),
  ].filter(Boolean);
}

function volumeList(node) {
  if (node.storages.length === 0) return "–";
  return el("details", {}, el("summary", {}, count(node.storages.length)),
    node.storages.map((storage) => el("div", {}, storage.failed ? state("bad", "failed ") : null,
      `${storage.medium}: ${bytes(storage.used)} of ${bytes(storage.capacity)} `, el("span", { class: "quiet mono" }, storage.id))));
}

// Problems.

/// Number of samples from which the pace of repairs is estimated: five minutes.
const PACE_SAMPLES = 30;

/// Returns when the blocks with too few replicas will be repaired at the pace of the last minutes.
function repairTime(history, left) {
  const samples = history.times.map((at, place) => [at, history.series.lowRedundancy[place]]).filter(([, value]) => Number.isFinite(value)).slice(-PACE_SAMPLES);
  if (samples.length < 2) return "The pace is not known yet.";
  const [[begun, before], [ended, after]] = [samples[0], samples.at(-1)];
  const minutes = duration((ended - begun) / 1000);
  if (after >= before) return `In the last ${minutes} the number has not fallen.`;
  return `At the pace of the last ${minutes} it takes ${duration((left * (ended - begun)) / 1000 / (before - after))} more.`;
}

/// Returns the tables of slow DataNodes and disks.
function slowParts(slow) {
  const ms = (value) => (Number.isFinite(value) ? milliseconds(value) : "–");
  const off = (key) => `Not measured: ${key} is not set on the NameNode.`;
  return [
    table(`Slow DataNodes: ${count(slow.datanodes?.length ?? 0)}`, [
      { title: "Web address", name: true, cell: (row) => row.SlowNode },
      { title: "Reported by", cell: (row) => row.SlowPeerLatencyWithReportingNodes.map((report) => el("div", {}, report.ReportingNode)) },
      { title: "Latency", number: true, cell: (row) => row.SlowPeerLatencyWithReportingNodes.map((report) => el("div", {}, ms(report.ReportedLatency))) },
      { title: "Median of all", number: true, cell: (row) => row.SlowPeerLatencyWithReportingNodes.map((report) => el("div", {}, ms(report.MedianLatency))) },
    ], slow.datanodes ?? [], slow.datanodes ? "None." : off("dfs.datanode.peer.stats.enabled")),
    table(`Slow disks: ${count(slow.disks?.length ?? 0)}`, [
      { title: "DataNode and directory", name: true, cell: (row) => row.SlowDiskID },
      { title: "Sync", number: true, cell: (row) => ms(row.Latencies.METADATA) },
      { title: "Read of 64 KiB", number: true, cell: (row) => ms(row.Latencies.READ) },
      { title: "Write of 64 KiB", number: true, cell: (row) => ms(row.Latencies.WRITE) },
    ], slow.disks ?? [], slow.disks ? "None." : off("dfs.datanode.fileio.profiling.sampling.percentage")),
  ];
}

export async function problems(_, view) {
  const [answer, history] = await Promise.all([data("/ui/problems"), data("/ui/history")]);
  const columns = [
    { title: "File", name: true, cell: (row) => (row.path ? el("a", { href: fileLink(row.path) }, row.path) : "only in snapshots") },
    { title: "Block", cell: (row) => el("span", { class: "mono" }, row.block) },
    { title: "Live replicas", number: true, cell: (row) => `${row.live} of ${row.replication}` },
    { title: "Corrupt replicas", number: true, cell: (row) => count(row.corrupt) },
  ];
  const part = (title, found, text) => [
    table(`${title}: ${count(found.count)}${found.blocks && found.blocks.length < found.count ? `, the first ${found.blocks.length}` : ""}`,
      columns, found.blocks ?? [], found.blocks ? "None." : "Only superusers see which. Choose a user above."),
    found.count > 0 && el("p", { class: "quiet" }, text),
  ];
  view.show(
    el("h1", {}, "Problems"),
    answer.starting && notice("", state("warning", "Safe mode is on. "), "Blocks that DataNodes have not reported yet are listed here when it is off. ",
      el("a", { href: "#startup" }, "Progress of the start")),
    answer.safeMode && !answer.starting && notice("", state("warning", "Safe mode is on. "), "Blocks are not repaired until it is off."),
    part("Blocks without a replica", answer.missing, "Start the DataNodes that hold them, or delete or restore the files."),
    part("Blocks with corrupt replicas", answer.corrupt, "They are copied from good replicas, if there are any."),
    part("Blocks with too few replicas", answer.lowRedundancy, `They are being copied as DataNodes have room for it. The most urgent come first. ${repairTime(history, answer.lowRedundancy.count)}`),
    slowParts(answer.slow),
  );
}

// Open files.

export async function openFiles(_, view) {
  const more = el("button", { type: "button", hidden: true }, "More");
  const columns = [
    { title: "File", name: true, cell: (row) => el("a", { href: fileLink(row.path) }, row.path) },
    { title: "Lease holder", cell: (row) => el("span", { class: "mono anywhere" }, row.holder) },
    { title: "Client's address", cell: (row) => row.machine },
    { title: "Lease renewed", number: true, cell: (row) => (row.idleSeconds === null ? "–" : `${duration(row.idleSeconds)} ago`) },
  ];
  let after = 0;
  const load = async () => {
    const answer = await data("/ui/open-files", { after });
    after = answer.next;
    more.hidden = !answer.hasMore;
    return answer;
  };
  const first = await load();
  const found = table(`${plural(first.total, "file")} open for writing, by ${plural(first.holders, "client")}`, columns, first.files, "No file is open for writing.");
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const next = await load();
      found.querySelector("tbody").append(...next.files.map((row) => tableRow(columns, row)));
    } catch (error) {
      more.after(failure(error));
    }
    more.disabled = false;
  });
  view.show(el("h1", {}, "Open files and leases"),
    el("p", { class: "quiet" }, `A lease that is not renewed for ${duration(first.softLimitSeconds)} may be taken over, and after ${duration(first.hardLimitSeconds)} the NameNode closes the files.`),
    found, more);
}

// Users.

/// Longest list of operations that is shown for a window.
const OPERATIONS_SHOWN = 8;

export async function users(_, view) {
  const refresh = async () => {
    const answer = await data("/ui/users");
    const columns = [
      { title: "Operation", name: true, cell: (row) => (row.opType === "*" ? "all operations" : row.opType) },
      { title: "Calls", number: true, cell: (row) => count(row.totalCount) },
      { title: "By user", cell: (row) => row.topUsers.map((user) => `${user.user} ${count(user.count)}`).join(", ") },
    ];
    view.show(
      el("h1", {}, "Calls by user"),
      el("p", { class: "quiet" }, "Calls of clients over RPC and WebHDFS. User names are not verified."),
      answer.windows.map((window) => table(`Last ${plural(window.windowLenMs / 60000, "minute")}`, columns,
        window.ops.slice(0, OPERATIONS_SHOWN), "No calls, or dfs.namenode.top.enabled is false.")),
    );
  };
  await refresh();
  view.every(10, refresh);
}

// Snapshots.

export async function snapshots(_, view) {
  const answer = await call(webhdfs("/", "GETSNAPSHOTTABLEDIRECTORYLIST"));
  const directories = (answer.SnapshottableDirectoryList ?? []).map((entry) => ({
    path: `${entry.parentFullPath === "/" ? "" : entry.parentFullPath}/${entry.dirStatus.pathSuffix}`.replace(/\/$/, "") || "/",
    ...entry,
  }));
  const locked = shared.session.readOnly;
  view.show(
    el("h1", {}, "Snapshots"),
    el("div", { class: "row" }, el("button", { type: "button", disabled: locked, onclick: allow }, "Allow snapshots of a directory")),
    locked && el("p", { class: "quiet" }, "Changes are off, because hearth.web.read-only is true."),
    directories.length === 0 && el("p", { class: "quiet" }, `No directory of ${shared.session.user} has snapshots. Superusers see those of all users.`),
    directories.map((directory) => {
      const list = el("div", {}, el("p", { class: "quiet" }, "Loading…"));
      const details = el("details", {
        class: "card",
        ontoggle: () => details.open && showSnapshots(directory.path, list).catch((error) => list.replaceChildren(failure(error))),
      },
      el("summary", {}, `${directory.path} – ${plural(directory.snapshotNumber, "snapshot")}, of ${directory.dirStatus.owner}`),
      el("div", { class: "row" },
        el("a", { class: "button", href: fileLink(directory.path) }, "Open the directory"),
        el("button", { type: "button", disabled: locked, onclick: () => create(directory.path) }, "New snapshot"),
        el("button", { type: "button", disabled: locked || directory.snapshotNumber > 0, onclick: () => act(webhdfs(directory.path, "DISALLOWSNAPSHOT"), "PUT") },
          "Disallow snapshots")),
      list);
      return details;
    }),
  );
}

/// Makes a change and shows the page again, or the reason why it failed.
async function act(url, method) {
  try {
    await call(url, method);
    reload();
  } catch (error) {
    document.querySelector("main h1").after(failure(error));
  }
}

async function allow() {
  const chosen = await ask({ title: "Allow snapshots of a directory", fields: [{ name: "path", label: "Directory", value: "/", required: true }] });
  if (chosen) await act(webhdfs(chosen.path, "ALLOWSNAPSHOT"), "PUT");
}

async function create(path) {
  const chosen = await ask({
    title: `New snapshot of ${path}`,
    fields: [{ name: "name", label: "Name", hint: "Empty: the time of the snapshot." }],
    confirm: "Create",
  });
  if (chosen) await act(webhdfs(path, "CREATESNAPSHOT", { snapshotname: chosen.name.trim() || null }), "PUT");
}

async function showSnapshots(path, list) {
  const answer = await call(webhdfs(path, "GETSNAPSHOTLIST"));
  const entries = answer.SnapshotList ?? [];
  const locked = shared.session.readOnly;
  const name = (entry) => entry.dirStatus.pathSuffix;
  list.replaceChildren(table(`Snapshots of ${path}`, [
    { title: "Name", name: true, cell: (entry) => el("a", { href: fileLink(`${path === "/" ? "" : path}/.snapshot/${name(entry)}`) }, name(entry)) },
    { title: "Created", cell: (entry) => time(entry.dirStatus.modificationTime) },
    {
      title: "Actions",
      cell: (entry) => el("div", { class: "row" },
        el("button", { type: "button", disabled: locked, onclick: () => rename(path, name(entry)) }, "Rename"),
        el("button", { type: "button", class: "danger", disabled: locked, onclick: () => remove(path, name(entry)) }, "Delete")),
    },
  ], entries, "There is no snapshot yet."));
}

async function rename(path, name) {
  const chosen = await ask({ title: `Rename snapshot ${name}`, fields: [{ name: "name", label: "New name", value: name, required: true }], confirm: "Rename" });
  if (chosen) await act(webhdfs(path, "RENAMESNAPSHOT", { oldsnapshotname: name, snapshotname: chosen.name.trim() }), "PUT");
}

async function remove(path, name) {
  const chosen = await ask({ title: `Delete snapshot ${name} of ${path}?`, text: "Files that only this snapshot keeps are lost.", confirm: "Delete", danger: true });
  if (chosen) await act(webhdfs(path, "DELETESNAPSHOT", { snapshotname: name }), "DELETE");
}

// Startup.

export async function startup(_, view) {
  const refresh = async () => {
    const progress = await call("/startupProgress");
    view.show(
      el("h1", {}, "Startup"),
      el("p", {}, `${percent(progress.percentComplete, 1)} complete after ${duration(progress.elapsedTime / 1000)}.`),
      table("Phases", [
        { title: "Phase", name: true, cell: (phase) => phase.desc },
        { title: "State", cell: (phase) => state(phase.status === "COMPLETE" ? "good" : "warning", phase.status.toLowerCase()) },
        { title: "Complete", number: true, cell: (phase) => percent(phase.percentComplete, 1) },
        { title: "Took", number: true, cell: (phase) => (phase.elapsedTime < 1000 ? `${phase.elapsedTime} ms` : duration(phase.elapsedTime / 1000)) },
        { title: "Steps", cell: (phase) => phase.steps.map((step) => el("div", {}, `${step.desc}: ${count(step.count)} of ${count(step.total)}`)) },
      ], progress.phases),
    );
  };
  await refresh();
  view.every(3, refresh);
}
