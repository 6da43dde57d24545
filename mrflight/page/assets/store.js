// What the page knows: the state as it was last sent, and the attempts that have ended.

const DONE = 0;
const FAILED = 1; // positions in the list of outcomes
const OUTCOMES = ["done", "failed", "stopped", "lost"];

function decoded(type, base64) {
  const text = atob(base64);
  const raw = new Uint8Array(text.length);
  for (let at = 0; at < raw.length; at += 1) raw[at] = text.charCodeAt(at);
  return new type(raw.buffer);
}

class Attempts {
  constructor() {
    this.columns = {
      worker: Uint16Array, stage: Uint32Array, task: Uint32Array, number: Uint16Array, outcome: Uint8Array,
      speculative: Uint8Array, start: Float64Array, seconds: Float32Array, attempts: Uint32Array, busy: Float32Array,
    };
    this.names = Object.keys(this.columns);
    this.clear();
  }

  clear() {
    this.length = 0;
    this.room = 0;
    this.generation = (this.generation || 0) + 1;
    for (const name of this.names) this[name] = new this.columns[name](0);
  }

  // Appends a chunk. One that begins at 0 replaces what was there: the connection is a new one.
  add(chunk) {
    if (chunk.since === 0) this.clear();
    if (chunk.since !== this.length) throw new Error(`attempts are missing before ${chunk.since}`);
    this.makeRoom(this.length + chunk.count);
    for (const name of this.names) this[name].set(decoded(this.columns[name], chunk[name]), this.length);
    for (let at = this.length; at < this.length + chunk.count; at += 1) this.start[at] -= chunk.began;
    this.length += chunk.count;
  }

  makeRoom(needed) {
    if (needed <= this.room) return;
    this.room = Math.max(1024, needed, this.room * 2);
    for (const name of this.names) {
      const larger = new this.columns[name](this.room);
      larger.set(this[name].subarray(0, this.length));
      this[name] = larger;
    }
  }

  end(at) {
    return this.start[at] + this.seconds[at];
  }
}

const store = {
  state: null,
  attempts: new Attempts(),
  parts: { findings: [], processes: [], incidents: [], shuffles: [], matrix: { workers: [], servers: [], sent: [], fetched: [] } },
  shades: [], // the number of the colour of each stage
  // The server's clock may differ from the browser's: seconds since the state was received count.
  received: 0,
  isLive: false,
};

// Stages of one name have one colour; what the driver does before and after has none.
function shadeOf(stage) {
  return store.shades[stage] === undefined ? GREY : store.shades[stage];
}

function setShades(stages) {
  const names = [...new Set(stages.map((each) => each.name))].filter((name) => name !== "check" && name !== "commit");
  store.shades = stages.map((each) => (names.includes(each.name) ? names.indexOf(each.name) % COLOURS : GREY));
}

// The seconds since the job began, by now.
function elapsed() {
  const state = store.state;
  if (state.ended !== null || !store.isLive) return state.elapsed;
  return state.elapsed + (performance.now() - store.received) / 1000;
}
