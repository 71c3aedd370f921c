"use strict";
const form = document.getElementById("filters");
const runs = document.getElementsByClassName("run");
const all = (selector, of = document) => [...of.querySelectorAll(selector)];

/** What Python packed, as text. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

/** An element with properties and children. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// The address holds the view: #dataset=digits&row=Mimetic&sort.standard.t0=-1 is a link to what is shown.
const controls = new Map();
const names = new Map();
let at = "";

/** A control by its name in the address; `get` and `set` speak of lists of texts, of which an empty one is the default. */
function control(name, get, set) {
  controls.set(name, {get, set});
}

/** Name an element by its section and place: `standard.t0`. */
function nameOf(element, kind) {
  const section = element.closest("section, nav");
  const of = section?.querySelector("h2")?.id.replace(/^study-/, "") || section?.id || section?.localName || "page";
  const place = names.get(of + kind) ?? 0;
  names.set(of + kind, place + 1);
  element.id ||= `${of}.${kind}${place}`;
  return element.id;
}

function link(element) {
  if (element) at = element.closest("[id]").id;
  const state = new URLSearchParams();
  for (const [name, {get}] of controls) for (const value of get()) state.append(name, value);
  if (at && (element || state.size)) state.set("at", at);
  history.replaceState(null, "", "#" + state);
}

async function read() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) return; // a link to a heading
  const wanted = new URLSearchParams(hash);
  for (const [name, {set}] of controls) set(wanted.getAll(name));
  await choose();
  show();
  at = wanted.get("at") ?? "";
  document.getElementById(at)?.scrollIntoView();
}

document.addEventListener("click", (event) => {
  const target = event.target.closest?.('a[href^="#"]');
  if (!target) return;
  event.preventDefault();
  const place = document.getElementById(target.getAttribute("href").slice(1));
  link(place);
  place.scrollIntoView();
  place.focus({preventScroll: true});
});

// What is shown: datasets and rows, everywhere on the page.
const rows = all('[name="row"]', form);
for (const field of all("select", form)) {
  control(field.name, () => (field.value ? [field.value] : []), ([value]) => {
    field.value = value ?? "";
    if (field.selectedIndex < 0) field.value = "";
  });
}
control("row", chosenRows, (values) => rows.forEach((box) => { box.checked = values.includes(box.value); }));

function chosenRows() {
  return rows.filter((box) => box.checked).map((box) => box.value);
}

function show() {
  const chosen = {dataset: [form.dataset.value].filter(Boolean), row: chosenRows()};
  for (const element of all("[data-dataset], [data-row]")) {
    element.hidden = Object.entries(chosen).some(([name, wanted]) => {
      const its = element.dataset[name];
      // A column may show one number of several: "digits: top-1 (%)".
      return wanted.length && its !== undefined && !wanted.some((each) => its === each || its.startsWith(each + ": "));
    });
  }
  for (const study of document.getElementsByClassName("study")) study.hidden = !study.querySelector(".run:not([hidden])");
  const shown = Array.from(runs).filter((run) => !run.hidden).length;
  form.querySelector("output").textContent = `${shown} of ${runs.length} runs. Pictures and notes show all.`;
  form.querySelector("summary").textContent = `Rows: ${chosen.row.length || "all"}`;
  for (const chart of charts.values()) {
    if (chart.plots.length) chart.draw();
    chart.sync();
  }
}

const change = async () => { await choose(); show(); link(); };
form.addEventListener("change", change);
form.addEventListener("reset", () => setTimeout(change));
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;

// Another baseline or metric: gains and tables that Python has computed take the place of those in the page.
const unpacked = new Map();
const original = new Map();

/** What Python packed into a study's section. */
async function packOf(study, kind) {
  const pack = document.querySelector(`[data-study="${CSS.escape(study)}"] > .${kind}`);
  if (pack && !unpacked.has(pack)) unpacked.set(pack, JSON.parse(await unpack(pack.textContent)));
  return unpacked.get(pack);
}

function put(place, html) {
  if (place.shown === html) return;
  const ids = place.ids ??= all("table", place).map((table) => table.id);
  place.shown = html;
  place.innerHTML = html ?? original.get(place);
  all("table", place).forEach((table, i) => {
    const held = ["sort", "find"].map((name) => [`${name}.${ids[i]}`, controls.get(`${name}.${ids[i]}`)?.get() ?? []]);
    table.id = ids[i];
    tools(table, ids[i]);
    for (const [name, values] of held) controls.get(name).set(values);
  });
}

async function choose() {
  const metric = form.metric?.value ?? "", baseline = form.baseline.value;
  for (const place of all("[data-gains]")) {
    const its = (metric || baseline) && await packOf(place.dataset.gains, "choices");
    const gains = its && (its[metric] ?? its[""]).gains;
    put(place, gains ? gains[baseline] ?? gains[""] : undefined);
    for (const line of all(`[data-default="${CSS.escape(place.dataset.gains)}"]`)) line.hidden = place.shown !== undefined;
  }
  for (const place of all("[data-table]")) {
    const its = metric && await packOf(place.closest(".study").dataset.study, "choices");
    put(place, its ? its[metric]?.tables[place.dataset.table]?.html : undefined);
  }
}

// Attention maps: two sliders move the part of each sheet that is seen.
for (const figure of all(".maps")) {
  const name = nameOf(figure, "f");
  figure.querySelector(".sliders").hidden = false;
  for (const slider of all("input", figure)) {
    const epochs = slider.dataset.epochs?.split(" ");
    const move = () => {
      figure.style.setProperty(`--${slider.name}`, slider.value - slider.min);
      slider.nextElementSibling.textContent = epochs ? epochs[slider.value] : slider.value;
      slider.setAttribute("aria-valuetext", slider.nextElementSibling.textContent);
    };
    slider.addEventListener("input", () => { move(); link(figure); });
    control(`${slider.name}.${name}`, () => (slider.value === slider.min ? [] : [slider.value]), ([value]) => {
      slider.value = value ?? slider.min;
      move();
    });
  }
}

// Pictures are packed SVG.
for (const image of all("img[data-svg]")) {
  const watch = new IntersectionObserver(([{isIntersecting}]) => {
    if (!isIntersecting) return;
    watch.disconnect();
    unpack(image.dataset.svg).then((text) => {
      image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
    });
  }, {rootMargin: "400px"});
  watch.observe(image);
}

// What is unfolded.
const folds = all("details").filter((fold) => !fold.closest("table, .numbers, form"));
for (const fold of folds) {
  nameOf(fold, "d");
  fold.firstElementChild.addEventListener("click", () => setTimeout(link, 0, fold));
}
control("open", () => folds.filter((fold) => fold.open).map((fold) => fold.id), (values) => {
  for (const fold of folds) if (values.length) fold.open = values.includes(fold.id);
});

// Tables: sorted by a click on a head, filtered by words, copied.
const MISSING = ["", "–", "none", "unknown"];
const textOf = (cell) => (cell.querySelector("summary") ?? cell).textContent.trim().replace(/\s+/g, " ");
const toNumber = (text) => {
  const found = /^[<≤]? ?([-+−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?![\w.])/i.exec(text);
  return found ? Number(found[1].replace("−", "-").replaceAll(",", "")) : NaN;
};

/** Labels of the columns, and the cell that heads each alone. */
function heads(table) {
  const labels = [], owners = [];
  for (const row of table.tHead.rows) {
    let column = 0;
    for (const cell of row.cells) {
      for (let i = 0; i < cell.colSpan; i++) labels[column + i] = [labels[column + i], textOf(cell)].filter(Boolean).join(" ");
      owners[column] = cell.colSpan === 1 ? cell : undefined;
      column += cell.colSpan;
    }
  }
  return {labels, owners};
}

/** Rows in the order of a column; numbers by size, what is missing last. */
function ordered(lines, column, down) {
  const texts = new Map(lines.map((line) => [line, textOf(line.cells[column])]));
  const known = lines.filter((line) => !MISSING.includes(texts.get(line)));
  const numeric = known.every((line) => !Number.isNaN(toNumber(texts.get(line))));
  known.sort((a, b) => {
    const [one, other] = [texts.get(a), texts.get(b)];
    return (down ? -1 : 1) * (numeric ? toNumber(one) - toNumber(other) : one.localeCompare(other));
  });
  return {numeric, lines: [...known, ...lines.filter((line) => !known.includes(line))]};
}

function tools(table, name) {
  const body = table.tBodies[0], lines = [...body.rows];
  const {labels, owners} = heads(table);
  const search = make("input", {type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows"});
  const said = make("output");
  let sorted = 0; // the column from 1 on; below 0: from the highest down
  const sort = (by) => {
    sorted = owners[Math.abs(by) - 1] ? by : 0;
    owners.forEach((cell, i) => {
      if (Math.abs(sorted) === i + 1) cell.setAttribute("aria-sort", sorted > 0 ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
    body.append(...(sorted ? ordered(lines, Math.abs(sorted) - 1, sorted < 0).lines : lines));
  };
  const filter = () => {
    const wanted = search.value.toLowerCase();
    for (const line of lines) line.classList.toggle("out", ![...line.cells].map(textOf).join(" ").toLowerCase().includes(wanted));
  };
  owners.forEach((cell, i) => {
    if (!lines.some((line) => line.cells[i]?.textContent.trim())) return delete owners[i]; // a drawing
    const button = make("button", {type: "button", className: "sort"});
    button.append(...cell.childNodes);
    if (!textOf(button)) button.append("name");
    cell.append(button);
    button.addEventListener("click", () => {
      const first = ordered(lines, i, false).numeric ? -(i + 1) : i + 1;
      sort(sorted === first ? -first : sorted === -first ? 0 : first);
      if (name) link(table);
    });
  });
  search.addEventListener("input", () => { filter(); if (name) link(table); });
  const bar = make("div", {className: "tools"}, search, "Copy as");
  for (const format of ["LaTeX", "Markdown", "CSV"]) {
    const button = make("button", {type: "button", textContent: format});
    button.addEventListener("click", async () => {
      const shown = [...body.rows].filter((line) => !line.hidden && !line.classList.contains("out"));
      const visible = labels.map((_, i) => i).filter((i) => (labels[i] || owners[i]) && lines.some((line) => !line.cells[i].hidden && textOf(line.cells[i])));
      const whole = !sorted && shown.length === lines.length && !table.querySelector("[hidden]");
      const text = (whole && await wholeText(table, format)) || written[format](
        table.caption ? textOf(table.caption) : "", visible.map((i) => labels[i]), shown.map((line) => visible.map((i) => textOf(line.cells[i]))));
      await copy(text);
      said.textContent = `${format} copied${whole ? "" : ", as shown"}`;
    });
    bar.append(button);
  }
  if (table.className === "forest") downloads(table, name, bar);
  bar.append(said);
  if (table.className === "forest") table.after(bar); // what it shows comes first
  else table.before(bar);
  if (!name) return;
  control(`sort.${name}`, () => (sorted ? [sorted] : []), ([value]) => sort(Number(value) || 0));
  control(`find.${name}`, () => (search.value ? [search.value] : []), ([value]) => { search.value = value ?? ""; filter(); });
}

/** A table as `analysis.tables` writes it, which is in the page for those of studies. */
async function wholeText(table, format) {
  const place = table.closest("[data-table]");
  if (!place) return undefined;
  const study = place.closest(".study").dataset.study;
  const tables = place.shown ? (await packOf(study, "choices"))[form.metric.value].tables : await packOf(study, "texts");
  return tables[place.dataset.table][format];
}

const TEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "−": "$-$", "±": "$\\pm$", "×": "$\\times$",
  "†": "\\dag{}", "·": "$\\cdot$", "<": "$<$", ">": "$>$", "–": "--"};
const tex = (text) => text.replace(/[\\~^−±×†·<>–&%$#_{}]/g, (letter) => TEX[letter] ?? `\\${letter}`);
const written = {
  LaTeX: (caption, names, lines) => [`% ${caption}; needs the package booktabs.`, `\\begin{tabular}{@{}l${"r".repeat(names.length - 1)}@{}}`, "\\toprule",
    ...[names, ...lines].map((line, i) => `${line.map(tex).join(" & ")} \\\\${i ? "" : "\n\\midrule"}`), "\\bottomrule", "\\end{tabular}", ""].join("\n"),
  Markdown: (caption, names, lines) => [caption, "", ...[names, names.map((_, i) => (i ? "--:" : "---")), ...lines].map(
    (line, i) => `| ${line.map((text) => (i === 1 ? text : text.replace(/[\\|*_`<]/g, "\\$&"))).join(" | ")} |`), ""].join("\n"),
  CSV: (caption, names, lines) => [names, ...lines].map((line) => line.map(
    (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",") + "\n").join(""),
};

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed here
    const area = make("textarea", {value: text});
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

for (const place of all("[data-gains], [data-table]")) original.set(place, place.innerHTML);
for (const table of all("table")) if (table.tHead && !table.closest("td, th")) tools(table, nameOf(table, "t"));
