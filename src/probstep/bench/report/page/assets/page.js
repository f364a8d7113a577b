"use strict";
// Sorts tables and shows the value under the pointer. Texts are only ever set as text, never as markup.

function sortBy(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[column];
    if (cell.classList.contains("none")) return null;
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const order = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing comes last
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    const sign = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return down ? -sign : sign;
  };
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort((a, b) => order(a[0], b[0]));
  table.tBodies[0].append(...rows.map((pair) => pair[1]));
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) =>
    cell.querySelector("button").addEventListener("click", () => sortBy(table, column)));
}

// Every named point of a figure: where it is, in the figure's own units, and what it says.
function readPoints(figure) {
  const points = [];
  for (const shape of figure.querySelectorAll("[data-n]")) {
    const values = shape.dataset.v;
    if (shape.tagName === "path" && shape.dataset.x === undefined) {
      const texts = values.split("|").filter((text) => text !== "");
      const places = shape.getAttribute("d").split(/[ML]/).slice(1);
      if (texts.length !== places.length) continue;
      places.forEach((place, i) => {
        const [x, y] = place.split(",").map(Number);
        points.push({ x, y, shape, text: texts[i] });
      });
    } else if (shape.tagName === "rect") {
      const box = ["x", "y", "width", "height"].map((name) => Number(shape.getAttribute(name)));
      points.push({ x: box[0] + box[2] / 2, y: box[1] + box[3] / 2, box, shape, text: values });
    } else {
      const x = Number(shape.dataset.x ?? shape.getAttribute("cx"));
      const y = Number(shape.dataset.y ?? shape.getAttribute("cy"));
      points.push({ x, y, shape, text: values });
    }
  }
  return points;
}

function nearest(points, x, y) {
  let found = null, least = 20 * 20;
  for (const point of points) {
    if (point.box) {
      const [left, top, width, height] = point.box;
      if (x >= left && x < left + width && y >= top && y < top + height) return point;
      continue;
    }
    const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
    if (distance < least) [found, least] = [point, distance];
  }
  return found;
}

const tip = document.getElementById("tip");
const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
ring.setAttribute("class", "ring");
ring.setAttribute("r", "5");

function hide() {
  tip.hidden = true;
  ring.remove();
  for (const shape of document.querySelectorAll(".hot")) shape.classList.remove("hot");
}

// A point of a line says "x, y"; a tile or a cross says all in a word.
function spell(figure, text) {
  const [x, y] = text.split(", ");
  return y === undefined ? x : `${figure.dataset.x} ${x}, ${figure.dataset.y} ${y}`;
}

function show(figure, point, event) {
  hide();
  tip.textContent = `${point.shape.dataset.n}: ${spell(figure, point.text)}`;
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${above ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18}px`;
  if (point.box) return;
  if (point.shape.tagName === "path") point.shape.classList.add("hot");
  ring.setAttribute("cx", point.x);
  ring.setAttribute("cy", point.y);
  figure.append(ring);
}

for (const figure of document.querySelectorAll("svg.figure")) {
  let points = null;
  const follow = (event) => {
    points ??= readPoints(figure);
    const frame = figure.getBoundingClientRect();
    const view = figure.viewBox.baseVal, unit = view.width / frame.width;
    const x = view.x + (event.clientX - frame.left) * unit;
    const y = view.y + (event.clientY - frame.top) * unit;
    const point = nearest(points, x, y);
    if (point) show(figure, point, event); else hide();
  };
  figure.addEventListener("pointermove", follow);
  figure.addEventListener("pointerdown", follow);
  figure.addEventListener("pointerleave", hide);
}
