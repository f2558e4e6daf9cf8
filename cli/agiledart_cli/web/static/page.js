// The page: begins a session, follows the events of the mesh, and shows the view that the address names.

import { duration, element, link, patchChildren } from "./elements.js";
import * as views from "./views.js";

const MAX_LINES = 2000;
const POLL_MS = 1000;
const VIEWS = [["mesh", "Mesh"], ["applications", "Applications"]];

const content = document.getElementById("content");
const connection = document.getElementById("connection");

class Page {
  constructor() {
    this.mayWrite = false;
    this.event = null;
    this.answer = null;
    this.lines = [];
    this.filter = "";
    this.source = null;
    this.focus = null;
    this.lostAt = null;
    this.poll = 0;
  }

  /** Return the words of the address: view, application, step. */
  get target() {
    const words = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    return words[0] ? words : ["mesh"];
  }

  async begin() {
    if (location.hash && !location.hash.startsWith("#/")) {
      const token = location.hash.slice(1);
      history.replaceState(null, "", "#/mesh");
      const answered = await this.ask("/session", { token });
      if (answered.error) this.say(answered.error);
    }
    addEventListener("hashchange", () => this.turn());
    setInterval(() => this.showConnection(), 1000);
    this.turn();
  }

  /** Turn to the view of the address. */
  turn() {
    this.poll += 1;
    this.answer = null;
    this.lines = [];
    const [view, name, step] = this.target;
    this.follow(view === "application" ? name : "");
    if (view === "logs") this.keepReading("logs", { name }, (body) => body.lines.map((line) => ({ ...line, text: `${line.node} ${line.step ?? ""} ${line.text}` })));
    if (view === "tap") this.keepReading("tap", { name, step }, (body) => body.rows.map((row) => ({ ...row, step, text: `${row.node} ${row.instance} ${JSON.stringify(row.row)}` })));
    if (["recovery", "scaling", "checkpoints"].includes(view)) this.readOnce(view, name);
    if (view === "submit" && name) this.readOnce("submission", name);
    this.plan = null;
    this.show();
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  /** Follow the events of the mesh, with all about one application. */
  follow(application) {
    if (this.source && this.source.readyState !== EventSource.CLOSED && this.focus === application) return;
    this.source?.close();
    this.focus = application;
    this.source = new EventSource("/events?application=" + encodeURIComponent(application));
    this.source.onmessage = (message) => {
      const event = JSON.parse(message.data);
      this.lostAt = null;
      this.mayWrite = event.may_write;
      if (event.away_s === null) this.event = event;
      this.away = event.away_s === null ? null : { ...event, at: Date.now() };
      this.showConnection();
      this.show();
    };
    this.source.onerror = () => {
      this.lostAt ??= Date.now();
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.follow(this.focus), 2000);
      this.showConnection();
    };
  }

  async ask(path, body) {
    try {
      const answered = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      return await answered.json();
    } catch {
      return { error: "`agiledart web` does not answer." };
    }
  }

  async readOnce(what, name) {
    const turn = this.poll;
    const body = await this.ask("/read/" + what, { name });
    if (turn !== this.poll) return;
    this.answer = body;
    this.show();
  }

  /** Read lines again and again, until another view is shown. */
  async keepReading(what, body, linesOf) {
    const turn = this.poll;
    let after = {};
    while (turn === this.poll) {
      const told = await this.ask("/read/" + what, { ...body, after });
      if (turn !== this.poll) return;
      this.answer = told;
      if (!told.error) {
        after = told.after;
        this.lines = [...this.lines, ...linesOf(told)].slice(-MAX_LINES);
      }
      this.show();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  async stop(name) {
    const dialog = element("dialog", { "aria-label": `Stop ${name}` },
      element("form", { method: "dialog" },
        element("p", {}, `Stop ${name}? Its sources read no more; the rows that are under way are still written.`),
        element("label", {}, element("input", { type: "checkbox", name: "now" }), " at once, without them"),
        element("p", {}, element("button", { value: "stop" }, "Stop it"), " ", element("button", { value: "" }, "Leave it running"))));
    document.body.append(dialog);
    dialog.showModal();
    dialog.onclose = async () => {
      const now = dialog.querySelector("input").checked;
      const isWanted = dialog.returnValue === "stop";
      dialog.remove();
      if (!isWanted) return;
      const told = await this.ask("/write/stop", { name, now });
      if (told.error) this.say(told.error);
    };
  }

  /** Show where a submission would run; what the form holds now is what is submitted afterwards. */
  async look(form) {
    const settings = form.elements.settings.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const submission = { target: form.elements.target.value.trim(), settings, name: form.elements.name.value.trim() };
    const turn = this.poll;
    this.plan = { submission };
    this.show();
    const answered = await this.ask("/write/plan", submission);
    if (turn !== this.poll) return;
    this.plan = { submission, answered };
    this.show();
  }

  async submit() {
    const { submission, answered } = this.plan;
    const turn = this.poll;
    this.plan = { submission, answered, isAsking: true };
    this.show();
    const started = await this.ask("/write/submit", submission);
    if (turn !== this.poll) return;
    if (started.error) this.plan = { submission, answered: started };
    else location.hash = "#/application/" + encodeURIComponent(started.name);
    this.show();
  }

  say(text) {
    const dialog = element("dialog", { "aria-label": "Message" }, element("form", { method: "dialog" }, element("p", {}, text), element("button", {}, "Close")));
    document.body.append(dialog);
    dialog.onclose = () => dialog.remove();
    dialog.showModal();
  }

  showConnection() {
    let text = "live";
    if (this.lostAt !== null) text = `no connection to \`agiledart web\` for ${duration((Date.now() - this.lostAt) / 1000)}; open its address again if it was restarted`;
    else if (this.away) text = `the agent has been away for ${duration(this.away.away_s + (Date.now() - this.away.at) / 1000)}: ${this.away.reason}`;
    else if (!this.event) text = "connecting …";
    if (connection.textContent !== text) connection.textContent = text;
    connection.className = this.lostAt !== null || this.away ? "bad" : "";
  }

  show() {
    const [view, name, step] = this.target;
    const here = ["node"].includes(view) ? "mesh" : VIEWS.some(([known]) => known === view) ? view : "applications";
    patchChildren(document.getElementById("views"), VIEWS.map(([known, label]) => {
      const made = link([known], label);
      if (known === here) made.setAttribute("aria-current", "page");
      return made;
    }));
    document.title = `${name ?? VIEWS.find(([known]) => known === view)?.[1] ?? "AgileDart"} · AgileDart`;
    if (this.event) patchChildren(content, this.view(view, name, step).flat(Infinity).filter(Boolean));
  }

  view(view, name, step) {
    switch (view) {
      case "application": return views.application(this.event, name, this);
      case "applications": return views.applications(this.event, this);
      case "node": return views.node(this.event, name);
      case "logs": return this.text(`Output of ${name}`, name);
      case "tap": return this.text(`Rows that leave ${step} of ${name}`, name);
      case "recovery": return this.answered(`What a failure costs ${name}`);
      case "scaling": return this.answered(`Changes of scale and place of ${name}`);
      case "submit": return views.submission(this, this.answer?.settings ? this.answer : { target: "", settings: [], name: name ?? "" });
      case "checkpoints": return this.answered(`Checkpoints of ${name}`);
      default: return views.mesh(this.event);
    }
  }

  answered(title) {
    if (this.answer?.error) return [element("h1", {}, title), element("p", { class: "note bad" }, this.answer.error)];
    return this.answer ? views.answer(title, this.answer) : [element("h1", {}, title), element("p", {}, "Asking …")];
  }

  text(title, name) {
    const wanted = this.filter.toLowerCase();
    const shown = this.lines.filter((line) => line.text.toLowerCase().includes(wanted));
    return [
      element("h1", {}, title), element("p", {}, link(["application", name], `Back to ${name}`)),
      element("p", {}, element("label", {}, "Only lines with ", element("input", { type: "search", oninput: (event) => { this.filter = event.target.value; this.show(); } })), `${shown.length} of ${this.lines.length} lines, the newest first`),
      this.answer?.error ? element("p", { class: "note bad" }, this.answer.error) : null,
      element("pre", { tabindex: 0, "aria-label": title }, shown.length ? [...shown].reverse().map((line) => line.text).join("\n") : "Nothing yet."),
    ];
  }
}

new Page().begin();
