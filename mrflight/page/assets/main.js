// Draws the page again when there is something new, at most once a frame.

let isDue = false;
let isNew = false; // whether there is data that the panels do not show yet
let stream, partitions, matrix;

function refresh() {
  if (isDue || !store.state) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const began = performance.now();
    draw();
    // How long the script took, for those who ask (the tests do).
    document.body.dataset.drawMs = (performance.now() - began).toFixed(2);
  });
}

function draw() {
  const { state } = store;
  if (isNew) showPanels(state);
  isNew = false;
  showTop(state);
  showStages(state);
  if (!byId("stream-card").hidden) stream.draw();
  partitions.draw();
  matrix.draw();
}

function showPanels(state) {
  showFigures(state);
  showFindings();
  showProcesses();
  showIncidents();
  byId("stream-card").hidden = state.kind === "cluster" || !state.workers.length;
  if (!byId("stream-card").hidden) stream.showLegend();
}

// Draws what time alone changes.
function tick() {
  requestAnimationFrame(() => {
    const { state } = store;
    showTop(state);
    showStages(state);
    if (!byId("stream-card").hidden) stream.draw();
  });
}

function take(kind, data) {
  if (kind === "state") {
    store.state = data;
    store.received = performance.now();
    setShades(data.stages);
    isNew = true;
    refresh();
  } else if (kind === "attempts") store.attempts.add(data);
  else if (kind in store.parts) store.parts[kind] = data;
}

function tell(what) {
  store.isLive = what === "live";
  document.querySelector("main").hidden = what === "locked";
  if (!store.state) {
    byId("state").className = "pill";
    say(byId("state"), { live: "connected", locked: "locked", gone: "no answer" }[what]);
  }
  refresh();
}

function main() {
  stream = new TaskStream(byId("stream"));
  partitions = new PartitionChart(byId("partitions"));
  matrix = new Matrix(byId("matrix"));
  addEventListener("resize", refresh);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    stream.palette = null;
    refresh();
  });
  // Time goes on between two states, four times a second.
  setInterval(() => {
    if (store.state && store.state.ended === null && store.isLive && !document.hidden) tick();
  }, 250);
  receive(take, tell);
}

main();
