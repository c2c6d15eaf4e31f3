// The DataNode's pages.

import {
  bytes, bytesPerSecond, call, card, count, duration, el, facts, meter, milliseconds, notice, perSecond, percent, start, startSession, state, table,
} from "/ui/common.js";
import { chart, latest, meanTimes } from "/ui/chart.js";
import { configuration } from "/ui/conf.js";
import { log } from "/ui/log.js";

const APACHES = { "tab-overview": "overview" };

async function overview(_, view) {
  const refresh = async () => {
    const [now, history] = await Promise.all([call("/ui/status"), call("/ui/history")]);
    view.show(overviewParts(now, history));
  };
  await refresh();
  view.every(10, refresh);
}

function overviewParts(now, history) {
  const { memory, totals } = now;
  const last = (name) => history.series[name]?.at(-1) ?? NaN;
  const times = { times: history.times, series: { read: meanTimes(history, "readNanos", "reads"), write: meanTimes(history, "writeNanos", "writes") } };
  return [
    el("h1", {}, `DataNode ${now.hostName}`),
    now.failedVolumes.length > 0 && notice("bad", state("bad", "Failed storage directories: "), now.failedVolumes.join(", ")),
    now.namenodes.some((namenode) => namenode.state === "connecting") && notice("", state("warning", "A NameNode does not answer. "),
      el("a", { href: "#namenodes" }, "Which")),
    el("div", { class: "cards" },
      card("Memory of replicas", bytes(memory.used), meter(memory.used, memory.limit),
        el("p", {}, `${percent(memory.used, memory.limit)} of ${bytes(memory.limit)}`)),
      card("Replicas in memory", count(memory.replicas),
        el("p", {}, `of ${count(now.replicas)}; ${count(memory.pinnedReplicas)} pinned by readers, ${count(memory.shownReplicas)} shown to them`)),
      card("Evictable", bytes(memory.evictableBytes),
        el("p", {}, `${bytes(memory.pinnedBytes)} pinned by readers, ${bytes(memory.dirtyBytes)} not on disk, ${bytes(memory.lingering)} of deleted replicas still held`)),
      card("Not yet on disk", bytes(memory.dirtyBytes),
        el("p", {}, `${count(memory.dirtyReplicas)} replicas, the oldest for ${duration(memory.oldestDirtyMs / 1000)}`),
        memory.flushFailures > 0 && el("p", {}, state("bad", `${count(memory.flushFailures)} writes failed`))),
      card("Centralised cache", bytes(now.cache.used), meter(now.cache.used, now.cache.capacity),
        el("p", {}, `${count(now.cache.replicas)} replicas, of ${bytes(now.cache.capacity)}`)),
      card("Reads now", bytesPerSecond(last("readBytes")), el("p", {}, `${perSecond(last("reads"))} of ${milliseconds(latest(times.series.read))}; ${bytes(totals.readBytes)} since the start`)),
      card("Writes now", bytesPerSecond(last("writtenBytes")), el("p", {}, `${perSecond(last("writes"))} of ${milliseconds(latest(times.series.write))}; ${bytes(totals.writtenBytes)} since the start`)),
      card("Connections", count(now.connections), el("p", {}, `${count(now.operations)} operations and ${count(now.transfers)} copies running`)),
      card("Up for", duration(now.uptimeMs / 1000), el("p", { class: "quiet" }, `Hearth ${now.version}`)),
    ),
    el("h2", {}, "Last hour"),
    el("div", { class: "cards charts" },
      chart("Throughput", history, [{ name: "readBytes", label: "read" }, { name: "writtenBytes", label: "written" }], bytesPerSecond),
      chart("Operations per second", history, [{ name: "reads", label: "reads" }, { name: "writes", label: "writes" }], perSecond),
      chart("Time of an operation", times, [{ name: "read", label: "read" }, { name: "write", label: "replica received" }], milliseconds),
      chart("Memory of replicas", history, [{ name: "memoryUsed", label: "used" }, { name: "dirtyBytes", label: "not on disk" }], bytes),
      chart("Evictions and reads back", history, [{ name: "evictions", label: "evictions" }, { name: "readBacks", label: "read back" }], perSecond),
      chart("Connections", history, [{ name: "connections", label: "open" }, { name: "operations", label: "operations" }], count)),
    el("h2", {}, "Details"),
    facts([
      ["UUID", now.uuid],
      ["Data transfer", now.addresses.transfer],
      ["IPC", now.addresses.ipc],
      ["One-sided access", now.addresses.oneSided ?? "none"],
      ["Domain socket", now.addresses.domainSocket ?? "none"],
      ["Evicted from memory", `${count(memory.evictions)} replicas; ${count(memory.readBacks)} read back from disk`],
      ["Written past memory", `${count(memory.full)} replicas, because memory was full`],
      ["Registered for one-sided reads", `${bytes(now.oneSided.registeredBytes)} in ${count(now.oneSided.advertisedReplicas)} replicas`],
      ["Corrupt copies found", count(now.corruptions)],
    ]),
  ];
}

async function volumes(_, view) {
  const refresh = async () => {
    const now = await call("/ui/status");
    view.show(
      el("h1", {}, "Volumes"),
      now.failedVolumes.length > 0 && notice("bad", state("bad", "Failed: "), now.failedVolumes.join(", ")),
      table("Storage directories", [
        { title: "Directory", name: true, cell: (volume) => volume.directory },
        { title: "Medium", cell: (volume) => volume.medium },
        { title: "Used", number: true, cell: (volume) => [bytes(volume.used), meter(volume.used, volume.capacity)] },
        { title: "Free", number: true, cell: (volume) => bytes(volume.remaining) },
        { title: "Capacity", number: true, cell: (volume) => bytes(volume.capacity) },
        { title: "Reserved", number: true, cell: (volume) => bytes(volume.reserved) },
        { title: "Replicas", number: true, cell: (volume) => count(volume.replicas) },
        { title: "Sync", number: true, cell: (volume) => milliseconds(volume.syncMs) },
        { title: "Write of 64 KiB", number: true, cell: (volume) => milliseconds(volume.writeMs) },
        { title: "Storage", cell: (volume) => el("span", { class: "mono anywhere" }, volume.storage) },
      ], now.volumes, "No block pool is open yet: no NameNode has answered."),
    );
  };
  await refresh();
  view.every(10, refresh);
}

async function namenodes(_, view) {
  const kinds = { active: "good", standby: "good", connecting: "warning" };
  const ago = (seconds) => (seconds === null ? "never" : `${duration(seconds)} ago`);
  const refresh = async () => {
    const now = await call("/ui/status");
    view.show(
      el("h1", {}, "NameNodes"),
      table("Connections to NameNodes", [
        { title: "Address", name: true, cell: (namenode) => namenode.address },
        { title: "Nameservice", cell: (namenode) => namenode.nameservice },
        { title: "Block pool", cell: (namenode) => el("span", { class: "mono anywhere" }, namenode.pool ?? "–") },
        { title: "State", cell: (namenode) => state(kinds[namenode.state] ?? "warning", namenode.state) },
        { title: "Last heartbeat", number: true, cell: (namenode) => ago(namenode.heartbeatSeconds) },
        { title: "Last full report", number: true, cell: (namenode) => ago(namenode.reportSeconds) },
      ], now.namenodes),
    );
  };
  await refresh();
  view.every(5, refresh);
}

const VIEWS = { overview, volumes, namenodes, configuration, log };

function route(fragment) {
  const name = APACHES[fragment] ?? fragment;
  return [Object.hasOwn(VIEWS, name) ? name : "overview", ""];
}

await startSession(document.querySelector("#user"));
start(VIEWS, route);
