// The tasks of each worker over time, on a canvas: a `Picture` that is stretched, what runs now, and
// the axis.

const LABEL = 96;
const AXIS = 22;
const MAX_STREAM = 520;
const COLLATOR = new Intl.Collator("en", { numeric: true });
const RUNNING_SHADE = 0.55;

class TaskStream {
  constructor(canvas) {
    this.canvas = canvas;
    this.picture = new Picture();
    this.view = null; // [from, to] in seconds while zoomed
    this.drag = null;
    this.palette = null;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("dblclick", () => this.showAll());
    canvas.addEventListener("keydown", (event) => this.pressKey(event));
    byId("zoom-in").addEventListener("click", () => this.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.zoom(2));
    byId("zoom-all").addEventListener("click", () => this.showAll());
  }

  // Orders the rows by name. `rowOf` has the row of each worker, and `workers` the names by row.
  order() {
    const names = store.state.workers;
    if (this.ordered === names.length) return;
    this.ordered = names.length;
    // An attempt that was stopped at once may have no worker that is known, and then has no row.
    const order = Array.from(names.keys()).filter((worker) => names[worker]);
    order.sort((a, b) => COLLATOR.compare(names[a], names[b]));
    this.rowOf = new Int32Array(names.length).fill(-1);
    order.forEach((worker, row) => { this.rowOf[worker] = row; });
    this.workers = order.map((worker) => names[worker]);
  }

  // While a job runs, the end moves on in steps, so that in between only what is new is painted.
  range() {
    if (this.view) return this.view;
    const now = Math.max(elapsed(), 0.05);
    if (store.state.ended !== null) return [0, now * 1.005];
    const step = niceStep(now / 20);
    return [0, (Math.floor(now / step) + 1) * step];
  }

  showAll() {
    this.view = null;
    refresh();
  }

  zoom(factor, around) {
    const [from, to] = this.range();
    const centre = around === undefined ? (from + to) / 2 : around;
    this.setView(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  setView(from, to) {
    const end = Math.max(elapsed(), 0.05) * 1.005;
    const least = Math.min(0.002, end);
    const width = Math.max(least, to - from);
    from = Math.max(0, Math.min(from, end - width));
    this.view = width >= end ? null : [from, from + width];
    refresh();
  }

  pressKey(event) {
    const [from, to] = this.range();
    const step = (to - from) / 5;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.showAll();
    else if (event.key === "ArrowLeft") this.setView(from - step, to - step);
    else if (event.key === "ArrowRight") this.setView(from + step, to + step);
    else return;
    event.preventDefault();
  }

  timeAt(x) {
    const [from, to] = this.range();
    return from + ((x - LABEL) / Math.max(1, this.width - LABEL)) * (to - from);
  }

  press(event) {
    if (event.offsetX < LABEL) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: event.offsetX, to: event.offsetX };
  }

  move(event) {
    if (this.drag) {
      this.drag.to = Math.max(LABEL, event.offsetX);
      refresh();
      return;
    }
    showTip(event, this.describe(event.offsetX, event.offsetY));
  }

  release() {
    const drag = this.drag;
    this.drag = null;
    if (drag && Math.abs(drag.to - drag.from) > 4) {
      const ends = [this.timeAt(drag.from), this.timeAt(drag.to)].sort((a, b) => a - b);
      this.setView(ends[0], ends[1]);
    } else refresh();
  }

  // The attempt below the pointer, or the next one within three pixels.
  find(x, y) {
    const row = Math.floor((y - AXIS) / this.rowHeight);
    const { attempts } = store;
    const slack = this.timeAt(x + 3) - this.timeAt(x);
    const at = this.timeAt(x);
    let best = -1;
    let distance = slack;
    for (let index = 0; index < attempts.length; index += 1) {
      if (this.rowOf[attempts.worker[index]] !== row) continue;
      const away = Math.max(attempts.start[index] - at, at - attempts.end(index), 0);
      if (away < distance || (away === 0 && best < 0)) [best, distance] = [index, away];
      if (away === 0) break;
    }
    return best;
  }

  describe(x, y) {
    if (x < LABEL || y < AXIS || !this.rowHeight) return "";
    const index = this.find(x, y);
    if (index < 0) return "";
    const { attempts, state } = store;
    const notes = [];
    if (attempts.outcome[index] !== DONE) notes.push(OUTCOMES[attempts.outcome[index]]);
    if (attempts.speculative[index]) notes.push("speculative");
    const many = attempts.attempts[index];
    const name = many > 1 ? plural(many, "attempt") : `task ${count(attempts.task[index])}, attempt ${attempts.number[index] + 1}`;
    const from = attempts.start[index];
    return [
      `${state.stages[attempts.stage[index]].name}: ${name}`,
      ...(notes.length ? [notes.join(", ")] : []),
      `${duration(attempts.seconds[index])}, from ${clockTime(from)}`,
      state.workers[attempts.worker[index]],
    ].join("\n");
  }

  colours() {
    const parts = (name) => {
      const hex = colour(name).slice(1);
      return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
    };
    const pack = ([red, green, blue]) => (blue << 16) | (green << 8) | red;
    return {
      stages: Array.from({ length: COLOURS + 1 }, (_, index) => pack(parts(`--s${index}`))),
      failed: pack(parts("--bad")),
      spare: pack(parts("--spare")),
      name: colour("--spare"), // which differs between light and dark
    };
  }

  // Draws what is in the range.
  draw() {
    this.order();
    const rows = Math.max(1, this.workers.length);
    this.rowHeight = Math.max(1, Math.min(26, Math.floor((MAX_STREAM - AXIS) / rows)));
    if (rows > MAX_STREAM - AXIS) this.rowHeight = (MAX_STREAM - AXIS) / rows;
    const { context, width, height, ratio } = prepared(this.canvas, Math.ceil(AXIS + rows * this.rowHeight));
    this.width = width;
    this.palette = this.palette || this.colours();
    this.drawGround(context, width, height, rows);
    const pixels = Math.max(1, Math.round((width - LABEL) * ratio));
    const [from, to] = this.range();
    this.picture.paint({ pixels, rows, from, to }, this.rowOf, this.palette);
    context.imageSmoothingEnabled = false;
    this.stretch(context, width, rows);
    if (store.state.ended === null) this.drawRunning(context, width);
    this.drawDrag(context, height);
  }

  drawGround(context, width, height, rows) {
    context.fillStyle = colour("--idle");
    context.fillRect(LABEL, AXIS, width - LABEL, height - AXIS);
    this.drawAxis(context, width, height);
    context.fillStyle = colour("--muted");
    context.textAlign = "left";
    const every = Math.ceil(14 / this.rowHeight);
    for (let row = 0; row < rows; row += every) {
      const name = this.workers[row] || "";
      context.fillText(shortened(context, name, LABEL - 10), 0, AXIS + (row + 0.5) * this.rowHeight);
    }
    context.strokeStyle = colour("--line");
    context.strokeRect(LABEL - 0.5, AXIS - 0.5, width - LABEL, height - AXIS);
  }

  drawAxis(context, width, height) {
    const [from, to] = this.range();
    const step = niceStep((to - from) / Math.max(2, (width - LABEL) / 110));
    context.fillStyle = colour("--muted");
    context.strokeStyle = colour("--line");
    context.lineWidth = 1;
    context.textAlign = "center";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = LABEL + ((at - from) / (to - from)) * (width - LABEL);
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, AXIS - 4);
      context.lineTo(Math.round(x) + 0.5, height);
      context.stroke();
      if (x > LABEL + 8 && x < width - 16) context.fillText(axisTime(at, step), x, 8);
    }
  }

  get gap() {
    if (this.rowHeight < 4) return 0;
    return this.rowHeight > 8 ? 2 : 1;
  }

  stretch(context, width, rows) {
    const { body, marks, hasMarks } = this.picture;
    const { rowHeight: high, gap } = this;
    const wide = body.width;
    if (!gap) {
      context.drawImage(body, 0, 0, wide, rows, LABEL, AXIS, width - LABEL, rows * high);
      return;
    }
    for (let row = 0; row < rows; row += 1) {
      const top = AXIS + row * high;
      context.drawImage(body, 0, row, wide, 1, LABEL, top + gap / 2, width - LABEL, high - gap);
      if (hasMarks) {
        context.drawImage(marks, 0, row, wide, 1, LABEL, top + high - gap / 2 - 3, width - LABEL, 3);
      }
    }
  }

  drawRunning(context, width) {
    const [from, to] = this.range();
    const now = Math.min(to, elapsed());
    const scale = (width - LABEL) / (to - from);
    const { rowHeight: high, gap } = this;
    context.globalAlpha = RUNNING_SHADE;
    for (const { worker, stage, start, speculative } of store.state.running) {
      const left = Math.max(from, start);
      if (left >= now) continue;
      const [x, y] = [LABEL + (left - from) * scale, AXIS + this.rowOf[worker] * high + gap / 2];
      const wide = (now - left) * scale;
      context.fillStyle = colour(`--s${shadeOf(stage)}`);
      context.fillRect(x, y, wide, high - gap);
      context.fillStyle = colour("--spare");
      if (speculative && gap) context.fillRect(x, y + high - gap - 3, wide, 3);
    }
    context.globalAlpha = 1;
  }

  drawDrag(context, height) {
    if (!this.drag) return;
    context.globalAlpha = 0.18;
    context.fillStyle = colour("--accent");
    context.fillRect(this.drag.from, AXIS, this.drag.to - this.drag.from, height - AXIS);
    context.globalAlpha = 1;
  }

  showLegend() {
    const { state } = store;
    const first = new Map();
    state.stages.forEach((stage, index) => first.set(stage.name, first.get(stage.name) ?? index));
    const items = Array.from(first, ([name, index]) => ({ name, colour: stageColour(index), className: "" }));
    items.push({ name: "failed", colour: "", className: "failed" }, { name: "speculative", colour: "", className: "spare" });
    const create = () => {
      const item = make("span");
      item.append(make("i"), make("span"));
      return item;
    };
    fill(byId("legend"), items, create, (item, { name, colour: shade, className }) => {
      item.firstElementChild.className = className;
      item.firstElementChild.style.background = shade;
      say(item.lastElementChild, name);
    });
    const { length } = store.attempts;
    const busy = state.running.length;
    say(byId("stream-note"), `${plural(state.attempts_ended, "attempt")} ended${busy ? `, ${count(busy)} running` : ""}${state.attempts_ended > length ? `, in ${count(length)} bars` : ""}`);
  }
}

function niceStep(least) {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
  return steps.find((step) => step >= least) || 86400;
}

function axisTime(at, step) {
  if (step < 0.1) return `${Math.round(at * 1000)} ms`;
  if (step < 1) return `${at.toFixed(1)} s`;
  return at < 60 ? `${Math.round(at)} s` : clockTime(at);
}
