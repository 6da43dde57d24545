// Two pictures: the partitions of a shuffle by size, and the bytes between workers and servers.

const SKEWED = 5; // times the median: `mrflight` says the same in its summary
const CHART = 190;
const GUTTER = 66;
const NAMED = 5;

class PartitionChart {
  constructor(canvas) {
    this.canvas = canvas;
    this.chosen = null; // a shuffle that the reader has chosen; else the newest with rows
    canvas.addEventListener("pointermove", (event) => showTip(event, this.describe(event.offsetX)));
    canvas.addEventListener("pointerleave", hideTip);
    byId("shuffle").addEventListener("change", (event) => {
      this.chosen = event.target.value;
      renew();
    });
  }

  shuffle() {
    const shuffles = store.parts.shuffles;
    return shuffles.find((each) => each.id === this.chosen) || shuffles[shuffles.length - 1];
  }

  showChoice() {
    const { shuffles } = store.parts;
    const select = byId("shuffle");
    select.hidden = shuffles.length < 2;
    fill(select, shuffles, () => make("option"), (option, shuffle) => {
      option.value = shuffle.id;
      say(option, shuffle.name);
    });
    const shuffle = this.shuffle();
    if (shuffle) select.value = shuffle.id;
  }

  draw() {
    byId("partitions-card").hidden = !store.parts.shuffles.length;
    const shuffle = this.shuffle();
    if (!shuffle) return;
    this.showChoice();
    const sizes = shuffle.bytes;
    this.order = Array.from(sizes.keys()).sort((a, b) => sizes[b] - sizes[a] || a - b);
    const middle = shuffle.median;
    const most = Math.max(1, sizes[this.order[0]] || 0);
    say(byId("partitions-note"), this.note(shuffle));
    const { context, width, height } = prepared(this.canvas, CHART);
    const bottom = height - 8;
    const top = 8;
    const yOf = (size) => bottom - (size / most) * (bottom - top);
    this.step = (width - GUTTER) / this.order.length;
    const gap = this.step > 5 ? 1 : 0;
    const shades = [colour("--s0"), colour("--s3")];
    this.drawGrid(context, width, most, yOf);
    const room = width - GUTTER;
    const columns = Math.min(this.order.length, Math.ceil(room));
    for (let column = 0; column < columns; column += 1) {
      const at = Math.floor((column / columns) * this.order.length);
      const size = sizes[this.order[at]];
      context.fillStyle = shades[isSkewed(size / shuffle.width, middle) ? 1 : 0];
      const x = GUTTER + (column / columns) * room;
      context.fillRect(x, yOf(size), Math.max(1, room / columns - gap), bottom - yOf(size));
    }
    this.drawMedian(context, width, middle * shuffle.width, yOf);
    this.showSkewed(shuffle, middle);
  }

  note(shuffle) {
    const all = shuffle.bytes.reduce((sum, size) => sum + size, 0);
    const each = shuffle.width > 1 ? `, ${count(shuffle.width)} in a bar` : "";
    return `${plural(shuffle.partitions, "partition")}, ${bytes(all)}${each}, median ${bytes(shuffle.median)} (dashed)`;
  }

  drawGrid(context, width, most, yOf) {
    context.fillStyle = colour("--muted");
    context.strokeStyle = colour("--line");
    context.textAlign = "right";
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(yOf(most * part)) + 0.5;
      context.beginPath();
      context.moveTo(GUTTER, y);
      context.lineTo(width, y);
      context.stroke();
      context.fillText(part ? bytes(most * part) : "0", GUTTER - 8, y);
    }
  }

  drawMedian(context, width, middle, yOf) {
    const y = Math.round(yOf(middle)) + 0.5;
    context.strokeStyle = colour("--text");
    context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width, y);
    context.stroke();
    context.setLineDash([]);
  }

  nameOf(shuffle, index) {
    if (shuffle.width === 1) return `partition ${count(index)}`;
    const first = index * shuffle.width;
    return `partitions ${count(first)} to ${count(Math.min(shuffle.partitions, first + shuffle.width) - 1)}`;
  }

  // What to say of each skewed partition. In bars of several only the largest one is known.
  skewed(shuffle, middle) {
    if (shuffle.width > 1) return isSkewed(shuffle.largest[1], middle) ? [[...shuffle.largest, null]] : [];
    const indexes = this.order.filter((index) => isSkewed(shuffle.bytes[index], middle));
    return indexes.map((index) => [index, shuffle.bytes[index], shuffle.rows[index]]);
  }

  showSkewed(shuffle, middle) {
    const skewed = this.skewed(shuffle, middle);
    const items = skewed.slice(0, NAMED).map(([index, size, rows]) => {
      const times = (size / middle).toFixed(0);
      const ofRows = rows === null ? "" : `, ${plural(rows, "row")}`;
      return [`partition ${count(index)}`, ` is skewed: ${bytes(size)}${ofRows}, ${times} times the median`];
    });
    if (skewed.length > NAMED) items.push(["", `and ${count(skewed.length - NAMED)} more are skewed`]);
    const create = () => {
      const item = make("li");
      item.append(make("b"), make("span"));
      return item;
    };
    fill(byId("skewed"), items, create, (item, [name, text]) => {
      say(item.firstElementChild, name);
      say(item.lastElementChild, text);
    });
  }

  describe(x) {
    const shuffle = this.shuffle();
    const index = this.order && this.order[Math.floor((x - GUTTER) / this.step)];
    if (index === undefined || !shuffle) return "";
    return `${this.nameOf(shuffle, index)}\n${bytes(shuffle.bytes[index])}, ${plural(shuffle.rows[index], "row")}`;
  }
}

function isSkewed(size, middle) {
  return middle > 0 && size >= SKEWED * middle;
}

const SIDE = 110;
const TOP = 24;

class Matrix {
  constructor(canvas) {
    this.canvas = canvas;
    this.direction = "sent";
    canvas.addEventListener("pointermove", (event) => showTip(event, this.describe(event.offsetX, event.offsetY)));
    canvas.addEventListener("pointerleave", hideTip);
  }

  showDirections() {
    const names = [["sent", "sent"], ["fetched", "fetched"]];
    const create = () => {
      const button = make("button");
      button.type = "button";
      button.addEventListener("click", () => {
        this.direction = button.dataset.direction;
        renew();
      });
      return button;
    };
    fill(byId("directions"), names, create, (button, [direction, text]) => {
      button.dataset.direction = direction;
      button.setAttribute("aria-pressed", String(direction === this.direction));
      say(button, text);
    });
  }

  draw() {
    const { matrix } = store.parts;
    byId("matrix-card").hidden = !matrix.servers.length;
    if (!matrix.servers.length) return;
    this.showDirections();
    const rows = matrix[this.direction];
    const columns = matrix.servers.length;
    this.high = Math.max(4, Math.min(24, Math.floor(320 / Math.max(1, rows.length))));
    const { context, width } = prepared(this.canvas, TOP + Math.max(1, rows.length) * this.high);
    this.wide = (width - SIDE) / columns;
    const all = rows.flat();
    this.most = Math.max(1, ...all);
    this.drawNames(context, matrix);
    const shade = colour(this.direction === "sent" ? "--s0" : "--s1");
    const [track, text] = [colour("--track"), colour("--text")];
    rows.forEach((row, y) => row.forEach((size, x) => this.drawCell(context, x, y, size, { shade, track, text })));
    const sum = all.reduce((total, size) => total + size, 0);
    const word = this.direction === "sent" ? "sent to data servers" : "fetched from data servers";
    say(byId("matrix-note"), `${bytes(sum)} ${word}; the darkest is ${bytes(this.most)}.`);
  }

  drawNames(context, matrix) {
    context.fillStyle = colour("--muted");
    context.textAlign = "center";
    const longest = Math.max(...matrix.servers.map((name) => context.measureText(name).width));
    const everyColumn = Math.ceil(Math.min(longest + 8, 90) / this.wide);
    matrix.servers.forEach((name, x) => {
      if (x % everyColumn) return;
      context.fillText(shortened(context, name, this.wide * everyColumn - 4), SIDE + (x + 0.5) * this.wide, 10);
    });
    context.textAlign = "left";
    const every = Math.ceil(13 / this.high);
    matrix.workers.forEach((name, y) => {
      if (y % every === 0) context.fillText(shortened(context, name, SIDE - 10), 0, TOP + (y + 0.5) * this.high);
    });
  }

  drawCell(context, x, y, size, { shade, track, text }) {
    const [left, top] = [SIDE + x * this.wide, TOP + y * this.high];
    const gap = this.wide > 8 && this.high > 8 ? 2 : this.high > 5 ? 1 : 0;
    context.fillStyle = track;
    context.fillRect(left, top, Math.max(1, this.wide - gap), this.high - gap);
    const part = size / this.most;
    if (size) {
      context.globalAlpha = 0.15 + 0.85 * part;
      context.fillStyle = shade;
      context.fillRect(left, top, Math.max(1, this.wide - gap), this.high - gap);
      context.globalAlpha = 1;
    }
    if (this.wide < 66 || this.high < 15 || !size) return;
    context.textAlign = "center";
    context.fillStyle = part > 0.55 ? "#ffffff" : text;
    context.fillText(bytes(size), left + (this.wide - gap) / 2, top + (this.high - gap) / 2 + 0.5);
  }

  describe(x, y) {
    const { matrix } = store.parts;
    const [column, row] = [Math.floor((x - SIDE) / this.wide), Math.floor((y - TOP) / this.high)];
    const size = (matrix[this.direction][row] || [])[column];
    if (size === undefined) return "";
    const word = this.direction === "sent" ? "sent to" : "fetched from";
    return `${matrix.workers[row]}\n${word} ${matrix.servers[column]}: ${bytes(size)}`;
  }
}
