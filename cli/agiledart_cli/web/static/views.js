// Views of the page. Each takes the newest event and returns the elements to show.

import { graph, latencies, lines, ring } from "./drawings.js";
import { bytes, clock, count, duration, element, link, milliseconds, rate, table } from "./elements.js";

const FINAL = ["finished", "failed", "stopped"];
const COLOURS = { running: "good", finished: "good", failed: "bad" };

const state = (row) => element("span", { class: `state ${COLOURS[row.state] ?? "watch"}` }, row.state + (row.is_unverified ? "?" : ""));
const heading = (text) => element("h1", {}, text);
const note = (text, isBad) => element("p", { class: isBad ? "note bad" : "note" }, text);
const facts = (pairs) => element("ul", { class: "facts" }, pairs.map(([name, value]) => element("li", {}, `${name}: `, value)));

function standing(node) {
  if (node.gone_s !== null) return element("span", { class: "state bad" }, `gone for ${duration(node.gone_s)}`);
  if (!node.answers) return element("span", { class: "state bad" }, "does not answer");
  return node.is_draining || node.is_leaving ? element("span", { class: "state watch" }, "drains") : element("span", { class: "state good" }, "works");
}

export function mesh(event) {
  const present = event.nodes.filter((node) => node.gone_s === null);
  return [
    heading(`${present.length} ${present.length === 1 ? "node" : "nodes"}`),
    event.warnings.map((text) => note(text)),
    element("div", { class: "pair" }, ring(event.nodes), latencies(event.nodes)),
    element("h2", {}, "Nodes"),
    table("Nodes", ["Node", "State", "Zone", "#Round trip", "#Instances", "Applications"], event.nodes.map((node) => [
      link(["node", node.name], node.name), standing(node), node.zone || "–",
      node.is_this_node ? "asked" : milliseconds(node.rtt_ms), `${count(node.instances)} of ${count(node.capacity)}`,
      (node.applications ?? []).flatMap((name) => [link(["application", name], name), " "]),
    ])),
  ];
}

export function applications(event, page) {
  const submit = page.mayWrite ? element("p", {}, link(["submit"], "Submit an application")) : null;
  if (!event.applications.length) return [heading("Applications"), submit, note("No applications yet. Submit one: agiledart submit FILE:NAME")];
  return [
    heading("Applications"), submit,
    table("Applications", ["Application", "Version", "State", "#In", "#Out", "#p99", "Since", "Why"], event.applications.map((row) => [
      link(["application", row.name], row.name), `v${row.version}`, state(row),
      rate(row.figures?.in_rate), rate(row.figures?.out_rate), milliseconds(row.figures?.p99_ms),
      row.changed_ms ? duration((event.at_ms - row.changed_ms) / 1000) : "–", (row.reason || row.figures?.reason || "").split("\n")[0],
    ])),
  ];
}

const placed = (stage) => stage.instances.map((instance) => instance.node).flatMap((name, place) => [place ? ", " : "", link(["node", name], name)]);
const sum = (counts) => Object.values(counts ?? {}).reduce((total, value) => total + value, 0);

function stages(status) {
  const sums = status.summary.steps ?? {};
  const byStage = new Map(status.stages.flatMap((stage) => stage.name.split("+").map((step, place) => [step, [stage, place]])));
  return table("Stages", ["Step", "Where", "#In", "#Out", "#Busy", "#Queue", "#Late", "#Not taken", "Event time", "Rows"], status.steps.map((line) => {
    const [stage, place] = byStage.get(line.step) ?? [null, 0];
    const times = (stage?.instances ?? []).map((instance) => instance.event_time).filter((time) => Number.isFinite(time));
    return [
      line.step, place === 0 && stage ? placed(stage) : "with the step before",
      rate(line.in_rate), rate(line.out_rate), line.busy === null ? "–" : `${Math.round(100 * line.busy)} %`, count(line.queue),
      count(sums[line.step]?.late), count((line.dropped ?? 0) + (line.errors ?? 0)),
      times.length ? count(Math.min(...times)) : "–", link(["tap", status.name, line.step], "tap"),
    ];
  }));
}

function circuits(status) {
  const rows = [];
  for (const stage of status.stages) for (const instance of stage.instances) for (const route of instance.routes ?? []) {
    const used = route.circuits.find((circuit) => circuit.in_use);
    rows.push([`${stage.name} ${instance.index}`, `${instance.node} → ${route.relay ? route.relay + " → " : ""}${route.to}`, route.state,
      milliseconds(used?.round_trip_ms), used ? `${bytes(used.bytes_per_second)}/s` : "–", clock(route.since_ms),
      route.changes.map((change) => `${clock(change.at_ms)} ${change.from || "direct"} → ${change.to || "direct"}: ${change.reason}`).join("; ")]);
  }
  return rows.length ? table("Circuits", ["Instance", "Hops", "State", "#Round trip", "#Bytes", "Since", "Changes"], rows) : element("p", {}, status.state === "running" ? "All rows stay within their node." : "No circuit is open.");
}

function waiting(status) {
  if (status.waiting?.length) {
    return status.waiting.map((cause) => note(element("span", {},
      cause.stage ? `${cause.stage} on ${cause.node || "?"}: ` : "", cause.text, cause.seconds === null ? "" : ` (${duration(cause.seconds)})`,
      cause.advice ? `. ${cause.advice}` : "", cause.blocks.length ? ` Behind it: ${cause.blocks.join(", ")}.` : "")));
  }
  return element("p", {}, "Nothing waits.");
}

function epochs(status) {
  const recovery = status.recovery;
  return [
    recovery && note(`Recovering: ${recovery.reason || recovery.phase}; attempt ${recovery.attempt}, from epoch ${recovery.from_epoch}${recovery.waits_for?.length ? `, waits for ${recovery.waits_for.join(", ")}` : ""}. ${recovery.remedy ?? ""}`),
    status.epoch ? facts([["epoch", count(status.epoch.committed)], ["committed", status.epoch.age_s === null ? "not yet" : `${duration(status.epoch.age_s)} ago`],
      ["saved", bytes(status.epoch.bytes)], ["took", milliseconds(status.epoch.duration_ms)], ["longest pause", milliseconds(status.epoch.max_pause_ms)],
      ["coordinator", status.epoch.coordinator], ["machines that may fail at once", count(status.epoch.tolerated_losses)]]) : element("p", {}, "It saves no checkpoints."),
  ];
}

export function application(event, name, page) {
  const row = event.applications.find((candidate) => candidate.name === name);
  if (!row) return [heading(name), note(`There is no application of this name.`), element("p", {}, link(["applications"], "All applications"))];
  const status = event.details[name];
  const top = [heading(`${name} v${row.version}`), facts([["state", state(row)], ["delivery", status?.delivery || "–"], ["submitted by", row.submitter || "–"], ["to", row.submitted_to || "–"]]),
    row.reason ? element("pre", {}, row.reason) : null,
    element("p", {}, link(["logs", name], "Output of its code"), " · ", link(["recovery", name], "What a failure costs"), " · ", link(["scaling", name], "Changes of scale and place"), " · ", link(["checkpoints", name], "Checkpoints"))];
  if (page.mayWrite && !FINAL.includes(row.state)) top.push(element("p", {}, element("button", { type: "button", onclick: () => page.stop(name) }, "Stop …")));
  if (page.mayWrite && FINAL.includes(row.state)) top.push(element("p", {}, link(["submit", name], "Submit it again")));
  if (!status) return [...top, element("p", {}, "Asking for its figures …")];
  const summary = status.summary;
  const lost = Object.entries({ late: summary.late, malformed: sum(summary.malformed), shed: sum(summary.shed), repeated: status.duplicated, lost: status.lost });
  return [
    ...top,
    facts([["read", count(summary.records_in)], ["written", count(sum(summary.results))], ...lost.map(([kind, value]) => [kind, count(value)])]),
    status.silent_nodes.length ? note(`No figures from ${status.silent_nodes.join(", ")}.`) : null,
    graph(status),
    element("div", { class: "pair" },
      lines("Rows a second", status.points, [["in", "in"], ["out", "out"]], rate),
      lines(Object.keys(summary.latency_ms ?? {}).length ? "Latency" : "Latency (known where rows at a sink have a ReadTime)", status.points, [["p50", "p50"], ["p99", "p99"]], milliseconds)),
    element("h2", {}, "Why is it waiting?"), waiting(status),
    element("h2", {}, "Stages"), stages(status),
    element("h2", {}, "Where rows go"),
    facts([["JOIN paths", status.paths.map((path) => path.join(" → ")).join("; ") || "–"], ["rows take", (status.data_paths ?? []).map((path) => path.join(" → ")).join("; ") || "–"]]),
    circuits(status),
    element("h2", {}, "Saved state"), epochs(status),
    element("h2", {}, "Sink logs"),
    Object.keys(status.logs).length ? table("Sink logs", ["Sink", "Log", "#Rows written"], Object.entries(status.logs).map(([step, log]) => [step, log, count(summary.results?.[step])])) : element("p", {}, "It writes none."),
    element("h2", {}, "History"),
    table("History", ["Time", "State", "Event"], [...status.history].reverse().map((entry) => [clock(entry.at_ms), entry.state, entry.text])),
  ];
}

export function node(event, name) {
  const row = event.nodes.find((candidate) => candidate.name === name);
  if (!row) return [heading(name), note("No node of this name is known."), element("p", {}, link(["mesh"], "All nodes"))];
  return [
    heading(name),
    facts([["state", standing(row)], ["address", row.address], ["host", row.host], ["zone", row.zone || "–"], ["labels", (row.labels ?? []).join(" ") || "–"]]),
    facts([["cores", count(row.cores)], ["memory free", bytes(row.free_memory)], ["instances", `${count(row.instances)} of ${count(row.capacity)}`], ["executors", count(row.executors)],
      ["round trip", milliseconds(row.rtt_ms)], ["clock ahead", row.clock_s === null ? "–" : `${count(row.clock_s)} s`], ["software", row.software || "–"]]),
    facts([["id", row.node_id], ["incarnation", count(row.incarnation)]]),
    element("h2", {}, "What it runs"),
    (row.applications ?? []).length ? element("ul", {}, row.applications.map((application) => element("li", {}, link(["application", application], application)))) : element("p", {}, "Nothing."),
    element("h2", {}, "Peers"),
    table("Peers", ["Node", "State", "Zone", "#Round trip from the asked node"], event.nodes.filter((other) => other.name !== name).map((other) => [link(["node", other.name], other.name), standing(other), other.zone || "–", milliseconds(other.rtt_ms)])),
  ];
}

/** Show a form for a submission, then where it would run, then the button that submits it. */
export function submission(page, latest) {
  const field = (label, input, text) => element("p", {}, element("label", {}, label, element("br"), input), text ? element("br") : null, text);
  return [
    heading("Submit an application"),
    element("form", { onsubmit: (event) => { event.preventDefault(); page.look(event.target); } },
      field("Function that builds it, FILE:NAME", element("input", { name: "target", required: true, size: 40, value: latest.target || null, autocomplete: "off" }), "A file of the folder in which agiledart web runs."),
      field("Settings, one NAME=VALUE a line", element("textarea", { name: "settings", rows: 4, cols: 60, spellcheck: "false" }, latest.settings.join("\n")), "As with --set: sources and sinks, such as trips=csv:trips.csv@pi2, and other parameters."),
      field("Name; empty for its own", element("input", { name: "name", value: latest.name || null, autocomplete: "off" })),
      element("p", {}, element("button", {}, "Show where it would run"))),
    page.plan ? planned(page, page.plan) : null,
  ];
}

function planned(page, { submission: wanted, answered, isAsking }) {
  if (!answered) return element("p", {}, "Asking …");
  if (answered.error) return element("div", {}, note("It was refused:", true), element("pre", {}, answered.error));
  const faults = answered.checks.filter((check) => !check.is_good);
  return element("div", {},
    element("h2", {}, `${answered.name} would run here`),
    table("Placement", ["Stage", "#Instances", "Where", "Why"], Object.entries(answered.placement).map(([stage, nodes]) =>
      [stage, count(nodes.length), [...new Set(nodes)].join(", "), answered.reasons[stage] ?? ""])),
    answered.checks.length ? table("Checks", ["Stage", "Node", "Reads or writes", "Result", "After a failure"], answered.checks.map((check) =>
      [check.stage || "code", check.node, check.connector, element("span", { class: check.is_good ? null : "bad" }, check.text), check.guarantee])) : null,
    faults.length ? note(`${faults.length} of ${answered.checks.length} checks failed; it would probably fail, too.`, true) : null,
    element("p", {}, element("button", { type: "button", disabled: isAsking, onclick: () => page.submit() }, isAsking ? "Submitting …" : `Submit ${wanted.target}`)));
}

/** Show an answer of the agent as rows of names and values. */
export function answer(title, body) {
  const shown = (value) => {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (Array.isArray(value) && value.every((part) => typeof part !== "object")) return value.join(", ") || "–";
    return typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? count(value) : String(value);
  };
  const lists = Object.entries(body).filter(([, value]) => Array.isArray(value) && value.length && typeof value[0] === "object" && !Array.isArray(value[0]));
  const plain = Object.entries(body).filter(([name]) => !lists.some(([other]) => other === name));
  return [heading(title), facts(plain.map(([name, value]) => [name.replaceAll("_", " "), shown(value)])),
    lists.map(([name, rows]) => {
      const keys = Object.keys(rows[0]);
      return [element("h2", {}, name.replaceAll("_", " ")), table(name, keys.map((key) => key.replaceAll("_", " ")), rows.map((row) => keys.map((key) => shown(row[key]))))];
    })];
}
