// The NameNode's pages: which address shows which view.

import { start, startSession } from "/ui/common.js";
import { datanodes, openFiles, overview, problems, snapshots, startup, users } from "/ui/cluster.js";
import { configuration } from "/ui/conf.js";
import { files } from "/ui/files.js";
import { log } from "/ui/log.js";

const VIEWS = {
  overview,
  datanodes,
  files,
  snapshots,
  "open-files": openFiles,
  problems,
  users,
  startup,
  configuration,
  log,
};

// Fragments of the addresses of Apache's pages, which redirect here.
const APACHES = {
  "tab-overview": "overview",
  "tab-datanode": "datanodes",
  "tab-datanode-volume-failures": "datanodes",
  "tab-snapshot": "snapshots",
  "tab-startup-progress": "startup",
};

/// Returns the view for the part of the address after `#`, and what it is to show.
function route(fragment) {
  // Apache's explorer has the path of a directory there.
  if (fragment.startsWith("/")) return ["files", fragment];
  if (fragment === "" && new URLSearchParams(location.search).get("page") === "files") return ["files", "/"];
  const place = fragment.indexOf("/");
  const name = place < 0 ? fragment : fragment.slice(0, place);
  const rest = place < 0 ? "" : fragment.slice(place);
  const known = APACHES[name] ?? name;
  return Object.hasOwn(VIEWS, known) ? [known, rest] : ["overview", ""];
}

await startSession(document.querySelector("#user"));
start(VIEWS, route);
