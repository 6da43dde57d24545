// Draws the page again when there is something new, at most once a frame.

let isDue = false;
let isNew = false; // whether there is data that is not shown yet, or another size to show it in
let stream, partitions, matrix;

function refresh() {
  if (isDue || !store.state) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

function renew() {
  isNew = true;
  refresh();
}

function draw() {
  const { state } = store;
  if (isNew) showPanels(state);
  isNew = false;
  showTop(state);
  showStages(state);
  if (!byId("stream-card").hidden) stream.draw();
}

function showPanels(state) {
  showFigures(state);
  showFindings();
  showProcesses();
  showIncidents();
  byId("stream-card").hidden = state.kind === "cluster" || !state.workers.length;
  if (!byId("stream-card").hidden) stream.showLegend();
  partitions.draw();
  matrix.draw();
}

function take(kind, data) {
  if (kind === "state") {
    store.state = data;
    store.received = performance.now();
    setShades(data.stages);
    renew();
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
  addEventListener("resize", renew);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    stream.palette = null;
    renew();
  });
  // Time goes on between two states, four times a second.
  setInterval(() => {
    if (store.state && store.state.ended === null && store.isLive && !document.hidden) refresh();
  }, 250);
  receive(take, tell);
}

main();
