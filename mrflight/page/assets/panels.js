// The parts of the page that are text: figures, stages, processes, and what was lost.

function figuresOf(state) {
  const { figures } = state;
  if (state.kind === "cluster") {
    return [
      ["Data servers", count(figures.servers), figures.left ? `${count(figures.left)} stopped or lost` : ""],
      ["Shuffles", count(figures.shuffles), plural(figures.partitions, "partition")],
      ["Maps committed", count(figures.maps), "since the server began"],
      ["Rows held", count(figures.rows), "in all shuffles"],
      ["Bytes held", bytes(figures.bytes), "without replicas"],
      ["Partitions lost", count(figures.lost), figures.lost ? "and written again" : "", figures.lost > 0],
    ];
  }
  const { attempts, seconds } = figures;
  const time = seconds ? [["Time", duration(seconds.total), phases(seconds)]] : [];
  return [
    ...time,
    ["Rows in", count(figures.rows_in), figures.bad_rows ? `${count(figures.bad_rows)} bad ones skipped` : ""],
    ["Rows out", seconds ? count(figures.rows_out) : "–", seconds ? "" : "known at the end"],
    ["Shuffled", bytes(figures.bytes_shuffled), plural(figures.partitions, "partition")],
    ["Attempts", count(attempts.map + attempts.reduce), `${count(attempts.map)} map, ${count(attempts.reduce)} reduce`],
    ["Failed attempts", count(attempts.failed), "", attempts.failed > 0],
    seconds
      ? ["Memory", bytes(figures.peak_memory_bytes), "all processes, at most"]
      : ["Memory", bytes(figures.memory_bytes), "all processes, now"],
  ];
}

function phases(seconds) {
  const names = ["start", "map", "reduce", "commit"].filter((name) => seconds[name]);
  return names.map((name) => `${name} ${seconds[name].toFixed(2)}`).join(" · ");
}

function showFigures(state) {
  const create = () => {
    const box = make("div", "figure");
    box.append(make("span"), make("b"), make("small"));
    return box;
  };
  fill(byId("figures"), figuresOf(state), create, (box, [name, value, note, isBad]) => {
    box.classList.toggle("bad", Boolean(isBad));
    say(box.children[0], name);
    say(box.children[1], value);
    say(box.children[2], note);
  });
}

function setHeadings(table, names) {
  if (table.tHead) return;
  const row = table.createTHead().insertRow();
  for (const name of names) row.append(make("th", "", name));
  table.createTBody();
}

function rowOf(cells) {
  const row = document.createElement("tr");
  for (let index = 0; index < cells; index += 1) row.append(make("td"));
  return row;
}

function showBar(cell, parts, title) {
  if (!cell.firstElementChild) cell.append(make("div", "bar"));
  const bar = cell.firstElementChild;
  bar.title = title;
  fill(bar, parts, () => make("i"), (piece, part) => {
    piece.className = part.className || "";
    piece.style.left = `${part.from * 100}%`;
    piece.style.width = `${Math.max(0, Math.min(1, part.to) - part.from) * 100}%`;
    piece.style.background = part.colour;
  });
}

const STAGE_COLUMNS = ["Stage", "Progress", "Tasks", "Rows", "Bytes", "Median", "Longest", "Spilled", "Retried", "Time", "Left"];

function showStages(state) {
  const table = byId("stages");
  setHeadings(table, STAGE_COLUMNS);
  // The check of functions before the first stage is of interest only if it takes long, or fails.
  const shown = state.stages
    .map((stage, index) => ({ stage, index }))
    .filter(({ stage }) => stage.name !== "check" || stage.failed || stage.longest > 1);
  fill(table.tBodies[0], shown, () => rowOf(STAGE_COLUMNS.length), (row, { stage, index }) => {
    const cells = row.children;
    if (!cells[0].firstElementChild) {
      cells[0].className = "name";
      cells[0].append(make("span", "dot"), make("span"));
    }
    cells[0].firstElementChild.style.background = stageColour(index);
    say(cells[0].lastElementChild, stage.name);
    cells[0].title = stage.name;
    const all = Math.max(1, stage.tasks);
    const done = stage.done / all;
    const running = Math.min(1, (stage.done + stage.running) / all);
    showBar(cells[1], [
      { from: 0, to: done, colour: stageColour(index) },
      { from: done, to: running, colour: stageColour(index), className: "more" },
    ], `${plural(stage.done, "task")} of ${count(stage.tasks)} done, ${count(stage.running)} running`);
    const isOver = stage.ended !== null;
    const end = isOver ? stage.ended : elapsed();
    say(cells[2], isOver && stage.done === stage.tasks ? count(stage.tasks) : `${count(stage.done)} / ${count(stage.tasks)}`);
    say(cells[3], stage.rows ? count(stage.rows) : "–");
    say(cells[4], stage.bytes ? bytes(stage.bytes) : "–");
    say(cells[5], stage.done ? duration(stage.median) : "–");
    say(cells[6], stage.done ? duration(stage.longest) : "–");
    say(cells[7], stage.spilled ? bytes(stage.spilled) : "–");
    say(cells[8], stage.retried ? count(stage.retried) : "–");
    cells[8].classList.toggle("bad", stage.failed > 0);
    say(cells[9], stage.began === null ? "–" : duration(end - stage.began));
    say(cells[10], isOver || stage.left === null ? "–" : `≈ ${duration(stage.left)}`);
  });
  byId("stages-card").hidden = !shown.length;
}

const PROCESS_COLUMNS = ["Process", "Use", "Blocks held", "Budget", "Memory", "Most", "Spilled"];

// A data server is measured by the blocks that it holds of its budget, the others by their memory.
function showProcesses() {
  const { processes } = store.parts;
  const table = byId("processes");
  setHeadings(table, PROCESS_COLUMNS);
  const largest = Math.max(1, ...processes.map((each) => each.peak));
  fill(table.tBodies[0], processes, () => rowOf(PROCESS_COLUMNS.length), (row, process) => {
    const cells = row.children;
    cells[0].className = "name";
    say(cells[0], process.gone ? `${process.name} (gone)` : process.name);
    cells[0].title = process.name;
    const { budget, held, memory, peak } = process;
    if (budget) {
      showBar(cells[1], [{ from: 0, to: held / budget, colour: "var(--s1)", className: held > budget ? "over" : "" }],
        `${bytes(held)} of ${bytes(budget)}`);
    } else {
      showBar(cells[1], [
        { from: 0, to: memory / largest, colour: "var(--s0)" },
        { from: memory / largest, to: peak / largest, colour: "var(--s0)", className: "more" },
      ], `${bytes(memory)} now, ${bytes(peak)} at most`);
    }
    const size = (number) => (number ? bytes(number) : "–");
    [budget ? bytes(held) : "–", size(budget), size(memory), size(peak), size(process.spilled)].forEach((text, index) => say(cells[index + 2], text));
    row.classList.toggle("gone", process.gone);
  });
  byId("processes-card").hidden = !processes.length;
}

function showIncidents() {
  const list = byId("incidents");
  const create = () => {
    const item = make("li");
    item.append(make("time"), make("p"), make("p"));
    return item;
  };
  if (store.state.kind === "cluster") say(byId("incidents-title"), "Servers that came and went, and what was lost");
  const newestFirst = store.parts.incidents.slice().reverse();
  const more = store.state.incidents_all - newestFirst.length;
  if (more > 0) newestFirst.unshift({ at: null, what: `${plural(more, "later incident")} not shown here`, done: "" });
  const shown = newestFirst.length ? newestFirst : [{ at: null, what: store.state.ended === null ? "Nothing so far." : "Nothing.", done: "" }];
  fill(list, shown, create, (item, incident) => {
    say(item.children[0], incident.at === null ? "" : clockTime(incident.at));
    say(item.children[1], incident.what);
    say(item.children[2], incident.done);
  });
}

function showFindings() {
  const { findings } = store.parts;
  const create = () => {
    const item = make("li");
    item.append(make("p"), make("p"));
    return item;
  };
  fill(byId("findings"), findings, create, (item, finding) => {
    say(item.children[0], finding.message);
    say(item.children[1], finding.advice);
  });
  byId("findings-card").hidden = !findings.length;
}

function showTop(state) {
  document.title = `${state.title} - mrflight`;
  say(byId("title"), state.title);
  say(byId("subtitle"), state.subtitle);
  const word = store.isLive || state.ended !== null ? state.state : "gone";
  const pill = byId("state");
  pill.className = `pill ${word}`;
  say(pill, word === "gone" ? "no answer" : word);
  const notice = byId("notice");
  notice.hidden = !state.error;
  notice.className = "notice bad";
  say(notice, state.error || "");
  showClock(state);
}

function showClock(state) {
  const now = elapsed();
  document.querySelector(".clock").hidden = state.ended !== null;
  say(byId("elapsed"), clockTime(now));
  const stage = state.ended === null && state.stages.findLast((each) => each.ended === null && !each.within);
  byId("left-box").hidden = !stage || stage.left === null;
  if (!stage || stage.left === null) return;
  say(byId("left-box").firstElementChild, `${stage.name}: left, about`);
  say(byId("left"), duration(Math.max(0, stage.left - (now - state.elapsed))));
}
