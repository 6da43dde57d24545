// The tasks of each worker over time, on a canvas. A picture with one row of pixels per worker is
// made of all attempts first, each pixel as full as its worker was busy, and then stretched. So a
// frame costs a pass over the attempts and one over the pixels, however small the tasks are.

const LABEL = 96;
const AXIS = 22;
const MAX_STREAM = 520;
const COLLATOR = new Intl.Collator("en", { numeric: true });
const RUNNING_SHADE = 0.55;
const IS_FAILED = 1; // marks of pixels
const IS_SPECULATIVE = 2;

class TaskStream {
  constructor(canvas) {
    this.canvas = canvas;
    this.body = document.createElement("canvas");
    this.marks = document.createElement("canvas");
    this.view = null; // [from, to] in seconds while zoomed
    this.drag = null;
    this.hidden = new Set(); // stages that the legend has switched off
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
    const order = Array.from(names.keys()).sort((a, b) => COLLATOR.compare(names[a], names[b]));
    this.rowOf = new Uint32Array(names.length);
    order.forEach((worker, row) => { this.rowOf[worker] = row; });
    this.workers = order.map((worker) => names[worker] || "(not known)");
  }

  range() {
    if (this.view) return this.view;
    return [0, Math.max(elapsed(), 0.05) * 1.005];
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
      if (this.rowOf[attempts.worker[index]] !== row || this.hidden.has(attempts.stage[index])) continue;
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
      state.workers[attempts.worker[index]] || "a worker that is not known",
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
    this.paint(pixels, rows);
    context.imageSmoothingEnabled = false;
    this.stretch(context, width, rows);
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

  // Fills `busy` with how busy each pixel of each row is, and `shade` with its colour.
  paint(pixels, rows) {
    const size = pixels * rows;
    if (!this.busy || this.busy.length !== size) {
      [this.busy, this.shade, this.mark] = [new Float32Array(size), new Uint32Array(size), new Uint8Array(size)];
    } else {
      this.busy.fill(0);
      this.mark.fill(0);
    }
    const [from, to] = this.range();
    const scale = pixels / (to - from);
    const { attempts, state } = store;
    const { worker, stage, outcome, speculative, start, seconds, attempts: many, busy } = attempts;
    const { rowOf, hidden } = this;
    for (let index = 0; index < attempts.length; index += 1) {
      const began = start[index];
      const took = seconds[index];
      if (began + took < from || began > to || hidden.has(stage[index])) continue;
      const mark = (outcome[index] === FAILED ? IS_FAILED : 0) | (speculative[index] ? IS_SPECULATIVE : 0);
      const part = many[index] > 1 ? Math.min(1, busy[index] / took) : 1;
      const left = (began - from) * scale;
      this.paintOne(rowOf[worker[index]] * pixels, pixels, left, left + took * scale, stage[index], mark, part);
    }
    if (state.ended === null) this.paintRunning(pixels, from, scale);
    this.toPictures(pixels, rows);
  }

  paintRunning(pixels, from, scale) {
    const now = elapsed();
    for (const { worker, stage, start, speculative } of store.state.running) {
      if (this.hidden.has(stage)) continue;
      const mark = speculative ? IS_SPECULATIVE : 0;
      const row = this.rowOf[worker] * pixels;
      this.paintOne(row, pixels, (start - from) * scale, (now - from) * scale, stage, mark, RUNNING_SHADE);
    }
  }

  // Paints from `left` to `right`, in pixels that may be parts of one, as full as `part` says.
  paintOne(row, pixels, left, right, stage, mark, part) {
    const shade = mark & IS_FAILED ? this.palette.failed : this.palette.stages[shadeOf(stage)];
    const first = Math.max(0, Math.floor(left));
    const last = Math.min(pixels - 1, Math.floor(right));
    if (first > last) return;
    if (first === last) {
      this.add(row + first, (Math.min(right, pixels) - Math.max(left, 0)) * part, shade, mark);
      return;
    }
    this.add(row + first, Math.min(1, first + 1 - left) * part, shade, mark);
    for (let at = row + first + 1; at < row + last; at += 1) {
      this.busy[at] = part;
      this.shade[at] = shade;
      this.mark[at] |= mark;
    }
    // A wide one leaves a gap to the next.
    if (right - left < 5 || part < 1) this.add(row + last, Math.min(1, right - last) * part, shade, mark);
  }

  add(at, part, shade, mark) {
    this.busy[at] += part;
    if (!(this.mark[at] & IS_FAILED) || mark & IS_FAILED) this.shade[at] = shade;
    this.mark[at] |= mark;
  }

  toPictures(pixels, rows) {
    for (const picture of [this.body, this.marks]) {
      if (picture.width !== pixels || picture.height !== rows) [picture.width, picture.height] = [pixels, rows];
    }
    const context = this.body.getContext("2d");
    if (!this.image || this.image.width !== pixels || this.image.height !== rows) {
      this.image = context.createImageData(pixels, rows);
      this.imageOfMarks = context.createImageData(pixels, rows);
    }
    const body = new Uint32Array(this.image.data.buffer);
    const marks = new Uint32Array(this.imageOfMarks.data.buffer);
    const { busy, shade, mark, palette } = this;
    this.hasMarks = false;
    for (let at = 0; at < busy.length; at += 1) {
      const part = busy[at];
      if (part === 0) {
        body[at] = 0;
        marks[at] = 0;
        continue;
      }
      // What is there at all is seen, and a failure is seen as one.
      const least = mark[at] & IS_FAILED ? 1 : 0.18;
      const alpha = Math.min(255, Math.max(least, part) * 255) | 0;
      body[at] = ((alpha << 24) | shade[at]) >>> 0;
      marks[at] = mark[at] & IS_SPECULATIVE ? ((255 << 24) | palette.spare) >>> 0 : 0;
      if (marks[at]) this.hasMarks = true;
    }
    context.putImageData(this.image, 0, 0);
    if (this.hasMarks) this.marks.getContext("2d").putImageData(this.imageOfMarks, 0, 0);
  }

  stretch(context, width, rows) {
    const high = this.rowHeight;
    const wide = this.body.width;
    if (high < 4) {
      context.drawImage(this.body, 0, 0, wide, rows, LABEL, AXIS, width - LABEL, rows * high);
      return;
    }
    const gap = high > 8 ? 2 : 1;
    for (let row = 0; row < rows; row += 1) {
      const top = AXIS + row * high;
      context.drawImage(this.body, 0, row, wide, 1, LABEL, top + gap / 2, width - LABEL, high - gap);
      if (this.hasMarks) {
        context.drawImage(this.marks, 0, row, wide, 1, LABEL, top + high - gap / 2 - 3, width - LABEL, 3);
      }
    }
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
