// Drawings in SVG: the ring, nodes by zone and latency, the graph of an application, and lines of the last ten minutes.

import { count, element, milliseconds, rate } from "./elements.js";

const MAX_DRAWN = 256;

function dot(node, x, y, radius) {
  const kind = node.gone_s !== null || !node.answers ? "gone" : node.instances ? "busy" : "idle";
  const words = { gone: "gone", busy: `${node.instances} instances`, idle: "idle" }[kind];
  return element("svg:a", { href: `#/node/${encodeURIComponent(node.name)}`, "aria-label": `${node.name}: ${words}` },
    element("circle", { cx: x, cy: y, r: radius, class: `node ${kind}` }, element("title", {}, `${node.name}: ${words}`)));
}

/** Draw the nodes at their place on the ring: the angle is the node's id. */
export function ring(nodes) {
  const drawn = nodes.slice(0, MAX_DRAWN);
  const radius = drawn.length > 40 ? 4 : 8;
  const dots = drawn.map((node) => {
    const angle = (parseInt(node.node_id.slice(0, 8), 16) / 2 ** 32) * 2 * Math.PI - Math.PI / 2;
    const [x, y] = [200 + 110 * Math.cos(angle), 150 + 110 * Math.sin(angle)];
    const label = drawn.length <= 24 && element("text", {
      x: 200 + 130 * Math.cos(angle), y: 154 + 130 * Math.sin(angle),
      "text-anchor": Math.cos(angle) > 0.3 ? "start" : Math.cos(angle) < -0.3 ? "end" : "middle",
    }, node.name);
    return [dot(node, x, y, radius), label];
  });
  return element("figure", {},
    element("svg", { viewBox: "0 0 400 300", role: "group", "aria-label": "Nodes on the ring, by id" },
      element("circle", { cx: 200, cy: 150, r: 110, class: "ring" }), dots),
    element("figcaption", {}, "The ring by node id. Filled: it runs something. Dashed: gone in the last ten minutes."));
}

/** Draw the nodes by zone (lines) and round trip from the asked node (to the right). */
export function latencies(nodes) {
  const zones = [...new Set(nodes.map((node) => node.zone))].sort();
  const largest = Math.max(1, ...nodes.map((node) => node.rtt_ms ?? 0));
  const height = 40 + 34 * Math.max(1, zones.length);
  const x = (node) => 110 + (210 * (node.rtt_ms ?? 0)) / largest;
  return element("figure", {},
    element("svg", { viewBox: `0 0 340 ${height}`, role: "group", "aria-label": "Nodes by zone and latency" },
      zones.map((zone, row) => [
        element("text", { x: 4, y: 24 + 34 * row }, (zone || "no zone").slice(0, 14)),
        element("line", { x1: 110, x2: 325, y1: 20 + 34 * row, y2: 20 + 34 * row, class: "edge" }),
      ]),
      nodes.slice(0, MAX_DRAWN).map((node) => dot(node, x(node), 20 + 34 * zones.indexOf(node.zone), 6)),
      element("text", { x: 110, y: height - 6, class: "soft" }, "0 ms"),
      element("text", { x: 325, y: height - 6, class: "soft", "text-anchor": "end" }, milliseconds(largest))),
    element("figcaption", {}, "The same nodes by zone and round trip from the asked node."));
}

/** Return the column of each stage: one behind the last of the stages that feed it. */
function columns(stages, edges) {
  const column = new Map(stages.map((stage) => [stage.name, 0]));
  for (let round = 0; round < stages.length; round += 1) {
    for (const [from, to] of edges) if (column.get(to) <= column.get(from) && column.get(from) < stages.length) column.set(to, column.get(from) + 1);
  }
  return column;
}

/** Draw the graph of an application: stages with figures, edges with rates and nodes. */
export function graph(status) {
  const edges = status.edges ?? [];
  const column = columns(status.stages, edges);
  const rows = new Map();
  const place = new Map();
  for (const stage of status.stages) {
    const row = rows.get(column.get(stage.name)) ?? 0;
    rows.set(column.get(stage.name), row + 1);
    place.set(stage.name, [10 + 215 * column.get(stage.name), 10 + 96 * row]);
  }
  const width = 20 + 215 * (Math.max(0, ...column.values()) + 1);
  const height = 20 + 96 * Math.max(1, ...rows.values());
  const step = (name) => status.steps.find((line) => line.step === name);
  const firstStep = (stage) => step(stage.name.split("+")[0]);
  const lastStep = (stage) => step(stage.name.split("+").at(-1));
  const stageNamed = (name) => status.stages.find((stage) => stage.name === name);
  const nodes = (stage) => [...new Set(stage.instances.map((instance) => instance.node))];
  const lines = edges.map(([from, to]) => {
    const [[x1, y1], [x2, y2]] = [place.get(from), place.get(to)];
    const out = stageNamed(from) && lastStep(stageNamed(from))?.out_rate;
    const crosses = nodes(stageNamed(from)).join() !== nodes(stageNamed(to)).join();
    return [
      element("path", { class: "edge", d: `M${x1 + 165} ${y1 + 36} C${x1 + 190} ${y1 + 36} ${x2 - 25} ${y2 + 36} ${x2} ${y2 + 36}` },
        element("title", {}, `${from} to ${to}: ${rate(out)}${crosses ? ", between nodes" : ", within a node"}`)),
      element("text", { x: x1 + 168, y: y1 + 28, class: "soft" }, rate(out)),
    ];
  });
  const boxes = status.stages.map((stage) => {
    const [x, y] = place.get(stage.name);
    const [first, last] = [firstStep(stage), lastStep(stage)];
    const waits = (status.waiting ?? []).some((cause) => cause.stage === stage.name);
    return element("g", {},
      element("rect", { x, y, width: 165, height: 76, rx: 6, class: waits ? "box watch" : "box" }, element("title", {}, stage.name)),
      element("text", { x: x + 8, y: y + 18, "font-weight": 700 }, stage.name.length > 22 ? stage.name.slice(0, 21) + "…" : stage.name),
      element("text", { x: x + 8, y: y + 35, class: "soft" }, `${stage.kind} ×${stage.instances.length} on ${nodes(stage).join(" ")}`.slice(0, 26)),
      element("text", { x: x + 8, y: y + 52 }, `${rate(first?.in_rate)} in, ${rate(last?.out_rate)} out`),
      element("text", { x: x + 8, y: y + 68, class: "soft" },
        `busy ${first?.busy === null || first?.busy === undefined ? "–" : Math.round(100 * first.busy) + " %"}, queue ${count(first?.queue)}`));
  });
  return element("figure", {},
    element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Graph" },
      element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Graph of ${status.name}`, width, height }, lines, boxes)),
    element("figcaption", {}, "Stages with rows a second in and out. A dashed box waits for something."));
}

/** Draw one or two figures of the last ten minutes. `series`: name in the points, label. */
export function lines(caption, points, series, unit) {
  const known = points.flatMap((point) => series.map(([name]) => point[name])).filter((value) => value !== null && value !== undefined);
  const largest = Math.max(1e-9, ...known);
  const path = (name) => {
    let drawing = "";
    let pen = "M";
    for (const point of points) {
      if (point[name] === null || point[name] === undefined) { pen = "M"; continue; }
      drawing += `${pen}${(510 - (460 * point.age_s) / 600).toFixed(1)} ${(125 - (110 * point[name]) / largest).toFixed(1)}`;
      pen = "L";
    }
    return drawing;
  };
  const newest = points.at(-1) ?? {};
  const words = series.map(([name, label]) => `${label} ${unit(newest[name])}`).join(", ");
  return element("figure", {},
    element("svg", { viewBox: "0 0 520 145", role: "img", "aria-label": `${caption} of the last ten minutes; now ${words}` },
      element("line", { x1: 50, x2: 510, y1: 125, y2: 125, class: "edge" }),
      element("text", { x: 46, y: 20, class: "soft", "text-anchor": "end" }, known.length ? count(largest) : "–"),
      element("text", { x: 46, y: 128, class: "soft", "text-anchor": "end" }, "0"),
      element("text", { x: 50, y: 141, class: "soft" }, "10 min ago"),
      element("text", { x: 510, y: 141, class: "soft", "text-anchor": "end" }, "now"),
      series.map(([name], index) => element("path", { d: path(name), class: index ? "other" : "first" }))),
    element("figcaption", {}, `${caption}: ${words}${series.length > 1 ? ` (${series[1][1]}: dashed)` : ""}`));
}
