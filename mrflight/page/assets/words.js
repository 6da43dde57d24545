// Words for numbers, and the few ways in which the page touches the document.

const COLOURS = 8;
const GREY = 8;

function bytes(size) {
  if (size < 1024) return `${Math.round(size)} B`;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    size /= 1024;
    if (size < 1024) return `${size.toFixed(size < 10 ? 2 : 1)} ${unit}`;
  }
  return `${(size / 1024).toFixed(1)} EiB`;
}

function count(number) {
  return number.toLocaleString("en-US");
}

function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

function clockTime(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (number) => String(number).padStart(2, "0");
  const minutes = `${Math.floor(whole / 60) % 60}`;
  if (whole < 3600) return `${minutes}:${two(whole % 60)}`;
  return `${Math.floor(whole / 3600)}:${two(minutes)}:${two(whole % 60)}`;
}

function byId(id) {
  return document.getElementById(id);
}

// All text of the page goes through textContent: names of jobs are what their users like.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Gives `parent` as many children as there are items, made once and filled in each time.
function fill(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(create());
  items.forEach((item, index) => update(parent.children[index], item, index));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function stageColour(stage) {
  return `var(--s${shadeOf(stage)})`;
}

function median(numbers) {
  if (!numbers.length) return 0;
  const ordered = Float64Array.from(numbers).sort();
  const middle = ordered.length >> 1;
  return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

function showTip(event, text) {
  const tip = byId("tip");
  say(tip, text);
  tip.hidden = !text;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 16;
  const top = below + box.height < innerHeight ? below : event.clientY - box.height - 10;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

// Sizes a canvas to its element, and returns a context whose unit is a pixel of CSS.
function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  const pixels = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  return { context, width, height, ratio };
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
