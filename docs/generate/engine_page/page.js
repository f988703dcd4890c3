// Draws a cycle, and moves through them.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const HOLD = 12; // cycles for which a caption that matters stays
const READ_FIRST = 3000; // milliseconds for the first caption
const RANK = { step: 0, sum: 1, skip: 2, trouble: 3, end: 4 };
const STAGES = [
  ["receive", "receive"], ["admit", "check, admit"], ["merge", "add"],
  ["queue", "queue"], ["replicate", "copy"], ["transmit", "transmit"],
];

let run = data.scenarios[0];
let cycle = 0;
let playing = false;
let speed = 8;

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

// What is there once.

const columns = data.slots * data.lanes;
const panels = Array.from({ length: data.workers }, (_, worker) => {
  const panel = make("article", `worker w${worker}`);
  const title = make("h2", "", `Worker ${worker}`);
  const note = make("small");
  title.append(note);
  const own = grid("its blocks");
  const sum = grid("the sum");
  own.cells.forEach((cell, number) => {
    const value = data.values[worker][Math.floor(number / columns)][number % columns];
    cell.textContent = value || "0";
    cell.classList.toggle("zero", value === 0);
    cell.title = `block ${number}: ${value ? `all elements ${value}` : "zero"}`;
  });
  const pair = make("div", "pair");
  pair.append(own.box, sum.box);
  panel.append(title, pair);
  find("workers").append(panel);
  return { panel, note, own: own.cells, sum: sum.cells };
});

function grid(name) {
  const box = make("figure");
  box.append(make("figcaption", "", name));
  const table = make("div", "grid");
  for (let slot = 0; slot < data.slots; slot += 1) table.append(make("span", "head", `slot ${slot}`));
  const cells = Array.from({ length: data.rows * columns }, (_, number) => {
    const cell = make("b", number % columns === data.lanes ? "cell apart" : "cell");
    table.append(cell);
    return cell;
  });
  box.append(table);
  return { box, cells };
}

const stages = Object.fromEntries(STAGES.map(([name, shown]) => {
  const item = make("li", "", shown);
  find("stages").append(item);
  return [name, item];
}));

const cards = Array.from({ length: data.slots }, (_, slot) => {
  const card = make("article", "slot");
  const title = make("h3", "", `Slot ${slot}`);
  const round = make("small");
  title.append(round);
  const bitmap = make("div", "bitmap");
  const marks = Array.from({ length: data.workers }, (_, worker) => make("i", `w${worker}`, worker));
  const count = make("span");
  bitmap.append(make("span", "label", "in:"), ...marks, count);
  const versions = [0, 1].map(() => {
    const row = make("div", "version");
    const label = make("span", "label");
    const lanes = Array.from({ length: data.lanes }, () => {
      const box = make("div", "lane");
      const [name, value, who, beats] = [make("span", "name"), make("b", "value"), make("span", "who"), make("span", "beats")];
      const dots = Array.from({ length: data.workers }, (_, worker) => make("i", `w${worker}`));
      who.append(...dots);
      const bars = Array.from({ length: 4 }, () => make("i"));
      beats.append(...bars);
      box.append(name, value, who, beats);
      row.append(box);
      return { box, name, value, dots, bars };
    });
    row.prepend(label);
    return { row, label, lanes };
  });
  const next = make("p", "next");
  card.append(title, bitmap, ...versions.map((each) => each.row), next);
  find("slots").append(card);
  return { card, round, marks, count, versions, next };
});

data.scenarios.forEach((scenario, number) => {
  const button = make("button", "", scenario.title);
  button.addEventListener("click", () => choose(number, true));
  find("scenarios").append(button);
});

// A cycle.

function show() {
  const engine = engineAt(data, run, cycle);
  showCaption();
  panels.forEach((panel, worker) => showWorker(panel, worker));
  cards.forEach((card, slot) => showSlot(card, slot, engine.slots[slot]));
  for (const [name, item] of Object.entries(stages)) {
    item.classList.toggle("on", Boolean(name === "queue" ? engine.queue : engine.stages[name]));
  }
  stages.queue.textContent = engine.queue ? `queue: ${engine.queue}` : "queue";
  const tally = tallyAt(data, run, cycle);
  const whole = data.workers * data.rows * columns;
  find("tally").innerHTML =
    `<b>${tally.sent}</b> of ${whole} blocks sent <span class="sentbar"><i style="width:${(100 * tally.sent) / whole}%"></i>` +
    `<i class="skip" style="width:${(100 * tally.skipped) / whole}%"></i></span> <b>${tally.skipped}</b> zero blocks passed over`;
  showPackets();
  find("slider").value = cycle;
  find("cycle").textContent = `cycle ${cycle} / ${run.cycles}`;
}

function showCaption() {
  const past = run.captions.filter(([when]) => when <= cycle);
  const recent = past.filter(([when]) => when > cycle - HOLD);
  const best = recent.reduce((a, b) => (!a || RANK[b[1]] >= RANK[a[1]] ? b : a), null) ?? past.at(-1);
  const now = find("now");
  if (now.textContent !== best[2]) {
    now.textContent = best[2];
    find("caption").className = best[1];
  }
  if (find("log").open) {
    find("history").replaceChildren(
      ...past.slice(-9).reverse().map(([when, kind, text]) => {
        const item = make("li", kind, text);
        item.dataset.cycle = when;
        return item;
      }),
    );
  }
}

function showWorker(panel, worker) {
  const state = workerAt(data, run, cycle, worker);
  panel.own.forEach((cell, number) => {
    const apart = number % columns === data.lanes ? " apart" : "";
    const zero = data.values[worker][Math.floor(number / columns)][number % columns] === 0;
    cell.className = `cell${apart}${zero ? " zero" : ""} ${state.blocks[number]}${state.skipped[number] ? " skipped" : ""}`;
  });
  panel.sum.forEach((cell, number) => {
    const value = state.sums[number] ?? (state.skipped[number] ? 0 : null);
    const apart = number % columns === data.lanes ? " apart" : "";
    cell.textContent = value ?? "";
    cell.className = `cell${apart} ${value === null ? "empty" : value ? "summed" : "zero skipped"}`;
  });
  const stalled = run.stalled && run.stalled[0] === worker && run.stalled[1] <= cycle && cycle < run.stalled[2];
  panel.panel.classList.toggle("stalled", Boolean(stalled));
  panel.note.textContent = stalled ? "stalled" : cycle >= run.done[worker] ? "done ✓" : "";
}

function showSlot(card, number, slot) {
  const { round, seen } = slot;
  const full = seen === 2 ** data.workers - 1;
  const before = round < 0;
  card.round.textContent = before ? "waits for the first" : round === 0 ? "look-ahead" : `round ${round}`;
  let inside = 0;
  card.marks.forEach((mark, worker) => {
    const on = !before && Boolean((seen >> worker) & 1);
    inside += on;
    mark.classList.toggle("on", on);
  });
  card.count.textContent = before ? "" : full ? "full" : `${inside} of ${data.workers}`;
  card.card.classList.toggle("full", full && !before);
  card.versions.forEach((version, which) => {
    const held = slot.rounds[which];
    const current = held === round && !before;
    version.row.className = `version ${held < 0 ? "unused" : current ? "current" : "kept"}`;
    version.label.textContent = held < 0 ? "free" : `${current ? (full ? "done" : "adding") : "kept"}: ${held === 0 ? "look-ahead" : `round ${held}`}`;
    version.lanes.forEach((lane, at) => showLane(lane, at, number, held, slot, which));
  });
  const words = before ? null : slot.words[round & 1];
  const names = words?.map((word, lane) =>
    word === 0xffffffff ? "end" : `block ${blockAt(data, word >>> 8, number, lane)}`);
  card.next.innerHTML = words
    ? words.every((word) => word === 0xffffffff) && full
      ? "next: <b>end</b>, the slot is done"
      : `${full ? "next" : "next so far"}: <b>${names.join("</b>, <b>")}</b>`
    : "next: –";
}

function showLane(lane, at, slot, held, state, which) {
  const inside = run.packets.filter((each) =>
    each.slot === slot && each.round === held && each.cause === "accepted" && each.judged <= cycle);
  const withBlock = inside.filter((each) => each.blocks.some(([where]) => where === at));
  const number = withBlock[0]?.blocks.find(([where]) => where === at)[1];
  const used = held >= 0 && Boolean((state.present[which] >> at) & 1);
  const finger = number === data.fingerprint;
  lane.box.classList.toggle("used", used);
  lane.name.textContent = !used ? "" : finger ? "call" : `block ${number}`;
  const beats = state.sums[which][at];
  lane.value.textContent = !used ? "" : finger ? (beats.length ? "≡" : "") : beats[0]?.value ?? "";
  lane.box.title = finger ? "a fingerprint of the call: do all workers sum the same thing?" : "";
  lane.dots.forEach((dot, worker) => {
    dot.classList.toggle("on", withBlock.some((each) => each.worker === worker));
  });
  lane.bars.forEach((bar, beat) => {
    bar.className = !used || !beats[beat] ? "" : beats[beat].when === cycle ? "now" : "on";
  });
}

// Packets on their way are elements that stay as long as their packet is there.

const chips = new Map();

/** Where the way of a worker's packets, or of its results, begins and ends. */
function wayOf(worker, up) {
  const stage = find("stage").getBoundingClientRect();
  const engine = find("engine").getBoundingClientRect();
  const panel = panels[worker].panel.getBoundingClientRect();
  const narrow = engine.top > panel.bottom;
  const from = narrow
    ? { x: panel.left + panel.width / 2 + (up ? -12 : 12), y: panel.bottom }
    : { x: panel.right, y: panel.top + panel.height / 2 + (up ? -14 : 14) };
  const to = narrow
    ? { x: engine.left + engine.width * (up ? 0.22 : 0.78), y: engine.top }
    : { x: engine.left, y: engine.top + engine.height * (up ? 0.3 : 0.7) };
  for (const end of [from, to]) Object.assign(end, { x: end.x - stage.left, y: end.y - stage.top });
  return { from, to, narrow };
}

function drawWays() {
  const lines = [];
  for (const up of [true, false]) {
    for (let worker = 0; worker < data.workers; worker += 1) {
      const { from, to } = wayOf(worker, up);
      lines.push(`<line class="w${worker}" x1="${from.x}" y1="${from.y}" x2="${to.x}" y2="${to.y}"/>`);
    }
    const { to } = wayOf(0, up);
    lines.push(`<circle cx="${to.x}" cy="${to.y}" r="5"/>`);
  }
  find("ways").innerHTML = lines.join("");
}

function showPackets() {
  const seen = new Set();
  let waiting = 0;
  for (const { packet, place, lost } of onTheWire(data, run, cycle)) {
    const number = run.packets.indexOf(packet);
    seen.add(number);
    let chip = chips.get(number);
    const fresh = !chip;
    if (!chip) {
      chip = chipOf(packet);
      find("packets").append(chip);
      chips.set(number, chip);
    }
    const { from, to, narrow } = wayOf(packet.worker, packet.up);
    // Both ends are as far from the boxes as a packet is long.
    const part = narrow ? 0.22 + 0.5 * place : 0.16 + 0.68 * place;
    const side = packet.slot ? 1 : -1;
    const queue = packet.up && place >= 1 ? (waiting += 1) - 1 : 0;
    let x = from.x + (to.x - from.x) * part + (narrow ? side * 5 : 0);
    let y = from.y + (to.y - from.y) * part + (narrow ? 0 : side * 13);
    if (packet.up && place >= 1) {
      x = to.x + (narrow ? queue * 48 : -42);
      y = to.y + (narrow ? -18 : queue * -27);
    }
    if (fresh) chip.style.transition = "none";
    chip.style.transform = `translate(${x}px, ${y}px) translate(-50%, -50%)`;
    if (fresh) chip.getBoundingClientRect();
    chip.style.transition = "";
    chip.classList.toggle("lost", lost);
  }
  for (const [number, chip] of chips) {
    if (!seen.has(number)) {
      chip.remove();
      chips.delete(number);
    }
  }
}

function chipOf(packet) {
  const chip = make("div", `packet ${packet.kind} w${packet.worker}`);
  chip.append(make("span", "to", `s${packet.slot}`));
  if (packet.kind === "probe") chip.append("?");
  else if (packet.kind === "missing") chip.append(`${packet.missing.join(",")}?`);
  else if (packet.round === 0) chip.append("⋯");
  else if (!packet.blocks.length) chip.append("–");
  for (const [, number, value] of packet.round ? packet.blocks : []) chip.append(make("b", "", number < 0 ? "" : value));
  return chip;
}

// The map of the whole run.

function drawMap() {
  const canvas = find("map");
  const box = canvas.getBoundingClientRect();
  const scale = devicePixelRatio || 1;
  canvas.width = box.width * scale;
  canvas.height = box.height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const gutter = 44;
  const unit = (box.width - gutter) / run.cycles;
  const rows = ["in", ...cards.map((_, slot) => `slot ${slot}`), "out"];
  const height = box.height / rows.length;
  const bar = (row, from, to, fill, top = 0, part = 1) => {
    pen.fillStyle = fill;
    const inner = height - 3;
    pen.fillRect(gutter + from * unit, row * height + 1 + inner * top, Math.max(1, (to - from) * unit), inner * part);
  };
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  rows.forEach((name, row) => {
    pen.fillStyle = colour("--dim");
    pen.fillText(name, 0, row * height + height / 2);
    bar(row, 0, run.cycles, colour("--track"));
  });
  for (const packet of run.packets) {
    if (packet.first >= 0) bar(packet.up ? 0 : rows.length - 1, packet.first, packet.last + 1, colour(`--w${packet.worker}`));
  }
  const states = run.changes.filter(([kind, , , round]) => kind === "state" && round >= 0);
  cards.forEach((_, slot) => {
    const own = states.filter((change) => change[2] === slot);
    own.forEach((change, index) => {
      const end = own[index + 1]?.[1] ?? run.cycles;
      const count = data.workers - change[5];
      bar(1 + slot, change[1], end, colour(count === data.workers ? "--sum" : "--part"), 1 - count / data.workers, count / data.workers);
    });
  });
  for (const [when, kind] of run.captions) {
    if (kind !== "trouble") continue;
    pen.fillStyle = colour("--bad");
    pen.fillRect(gutter + when * unit, 0, 1.5, box.height);
  }
}

// Moves.

function go(to) {
  cycle = Math.max(0, Math.min(run.cycles, to));
  show();
}

function leave() {
  history.replaceState(null, "", `#scenario=${run.name}&cycle=${cycle}`);
}

function play(on) {
  if (on && cycle >= run.cycles) cycle = 0;
  playing = on;
  find("play").textContent = on ? "❚❚" : "▶";
  find("play").setAttribute("aria-label", on ? "pause" : "play");
  document.documentElement.classList.toggle("playing", on && !calm.matches && speed < 40);
  document.documentElement.style.setProperty("--tick", `${1 / speed}s`);
  last = performance.now() + (cycle === 0 ? READ_FIRST : 0);
  if (on) requestAnimationFrame(frame);
  else leave();
}

// When the latest cycle was due: later than now while there is something to read.
let last = 0;
function frame(time) {
  if (!playing) return;
  const steps = Math.floor(((time - last) * speed) / 1000 + 0.2);
  if (steps > 0) {
    const before = cycle;
    go(cycle + Math.min(steps, 4));
    const read = run.captions.some(([when, kind]) => kind !== "step" && when > before && when <= cycle);
    last = time + (read ? Math.max(0, 1600 - 40 * speed) : 0);
    if (cycle >= run.cycles) return play(false);
  }
  requestAnimationFrame(frame);
}

function step(by, event) {
  play(false);
  if (event) {
    const cycles = run.captions.map(([when]) => when);
    go(by > 0 ? cycles.find((when) => when > cycle) ?? run.cycles : cycles.findLast((when) => when < cycle) ?? 0);
  } else go(cycle + by);
  leave();
}

function choose(number, start) {
  run = data.scenarios[number];
  [...find("scenarios").children].forEach((button, at) => button.setAttribute("aria-pressed", at === number));
  find("about").textContent = run.about;
  find("slider").max = run.cycles;
  chips.forEach((chip) => chip.remove());
  chips.clear();
  cycle = 0;
  go(0);
  drawMap();
  drawWays();
  play(start && !calm.matches);
}

find("play").addEventListener("click", () => play(!playing));
find("back").addEventListener("click", () => step(-1));
find("forward").addEventListener("click", () => step(1));
find("back-event").addEventListener("click", () => step(-1, true));
find("forward-event").addEventListener("click", () => step(1, true));
find("slider").addEventListener("input", (event) => {
  if (playing) play(false);
  go(Number(event.target.value));
});
find("slider").addEventListener("change", leave);
find("speed").addEventListener("change", (event) => {
  speed = Number(event.target.value);
  if (playing) play(true);
});
find("log").addEventListener("toggle", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const number = Number(event.key) - 1;
  if (event.key === " " && !["BUTTON", "SUMMARY"].includes(event.target.tagName)) play(!playing);
  else if (event.key === "ArrowRight") step(1, event.shiftKey);
  else if (event.key === "ArrowLeft") step(-1, event.shiftKey);
  else if (data.scenarios[number]) choose(number, true);
  else return;
  event.preventDefault();
});
const redraw = () => {
  drawMap();
  drawWays();
  show();
};
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

function open() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = Math.max(0, data.scenarios.findIndex((each) => each.name === asked.get("scenario")));
  choose(number, !asked.has("cycle"));
  if (asked.has("cycle")) {
    go(Number(asked.get("cycle")) || 0);
    leave();
  }
}
addEventListener("hashchange", open);
open();
