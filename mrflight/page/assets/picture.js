// A picture of all attempts with one row of pixels per worker, in which each pixel is as full as its
// worker was busy. So it costs a pass over the attempts, and one over the pixels, however small the
// tasks are; and as long as the range stays, only what is new costs anything.

const IS_FAILED = 1; // marks of pixels
const IS_SPECULATIVE = 2;
const LEAST = 46; // of 255: what is there at all is seen
const WIDE = 5; // in pixels: a wider attempt leaves a gap to the next one

class Picture {
  constructor() {
    this.body = document.createElement("canvas");
    this.marks = document.createElement("canvas");
    this.hasMarks = false;
    this.key = "";
    this.painted = 0;
  }

  // Paints the attempts from `from` to `to` seconds; `rowOf` has the row of each worker.
  paint({ pixels, rows, from, to }, rowOf, palette) {
    const { attempts, shades } = store;
    const key = [pixels, rows, from, to, attempts.generation, shades, palette.name].join();
    if (key !== this.key) {
      this.clear(pixels, rows);
      this.key = key;
    }
    if (this.painted === attempts.length) return;
    this.add(attempts, pixels, from, to, rowOf, palette);
    this.painted = attempts.length;
    this.show(palette);
  }

  clear(pixels, rows) {
    const size = pixels * rows;
    if (this.body.width !== pixels || this.body.height !== rows || !this.busy) {
      for (const canvas of [this.body, this.marks]) [canvas.width, canvas.height] = [pixels, rows];
      [this.busy, this.shade, this.mark] = [new Float32Array(size), new Uint32Array(size), new Uint8Array(size)];
      this.image = this.body.getContext("2d").createImageData(pixels, rows);
      this.imageOfMarks = this.marks.getContext("2d").createImageData(pixels, rows);
    } else {
      this.busy.fill(0);
      this.mark.fill(0);
      for (const canvas of [this.body, this.marks]) canvas.getContext("2d").clearRect(0, 0, pixels, rows);
    }
    this.hasMarks = false;
    this.painted = 0;
  }

  // All in one function: the calls for each pixel would take half of the time.
  add(attempts, pixels, from, to, rowOf, palette) {
    const { worker, stage, outcome, speculative, start, seconds, attempts: many, busy: took } = attempts;
    const { busy, shade, mark } = this;
    const scale = pixels / (to - from);
    const colours = store.shades.map((number) => palette.stages[number]);
    for (let index = this.painted; index < attempts.length; index += 1) {
      const left = (start[index] - from) * scale;
      const right = left + seconds[index] * scale;
      if (right < 0 || left >= pixels || rowOf[worker[index]] < 0) continue;
      const isFailed = outcome[index] === FAILED;
      const colour = isFailed ? palette.failed : colours[stage[index]];
      const marks = (isFailed ? IS_FAILED : 0) | (speculative[index] ? IS_SPECULATIVE : 0);
      const part = many[index] > 1 ? Math.min(1, took[index] / seconds[index]) : 1;
      const row = rowOf[worker[index]] * pixels;
      const first = row + (left > 0 ? left | 0 : 0);
      const last = row + Math.min(pixels - 1, right | 0);
      const isCut = right - left >= WIDE && part === 1;
      for (let at = first; at <= last; at += 1) {
        if (at === last && isCut && last > first) break;
        const begins = at === first ? Math.max(0, left - (first - row)) : 0;
        const ends = at === last ? Math.min(1, right - (last - row)) : 1;
        busy[at] += (ends - begins) * part;
        if (isFailed || !(mark[at] & IS_FAILED)) shade[at] = colour;
        mark[at] |= marks;
      }
    }
  }

  show(palette) {
    const body = new Uint32Array(this.image.data.buffer);
    const marks = new Uint32Array(this.imageOfMarks.data.buffer);
    const { busy, shade, mark } = this;
    const spare = (0xff000000 | palette.spare) >>> 0;
    for (let at = 0; at < busy.length; at += 1) {
      const part = busy[at];
      if (part === 0) {
        body[at] = marks[at] = 0;
        continue;
      }
      const full = mark[at] & IS_FAILED || part >= 1 ? 255 : Math.max(LEAST, (part * 255) | 0);
      body[at] = ((full << 24) | shade[at]) >>> 0;
      marks[at] = mark[at] & IS_SPECULATIVE ? spare : 0;
      if (marks[at]) this.hasMarks = true;
    }
    this.body.getContext("2d").putImageData(this.image, 0, 0);
    if (this.hasMarks) this.marks.getContext("2d").putImageData(this.imageOfMarks, 0, 0);
  }
}
