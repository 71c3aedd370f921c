// Figures as SVG, as they are seen: texts, lines, maps and charts at their places. A picture is the one that Python drew.
const DRAWN_BY = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "text-anchor"];
const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

async function svgOf(figure) {
  const picture = figure.querySelector("img[data-svg]");
  if (picture) return (await unpack(picture.dataset.svg)).replace(/^[^]*?(?=<svg)/, "");
  const box = figure.getBoundingClientRect();
  const place = ({left, top, width, height}) => `x="${left - box.left}" y="${top - box.top}" width="${width}" height="${height}"`;
  const parts = [];
  const chart = charts.get(figure);
  chart?.draw();
  for (const {view, place: plot} of chart?.plots ?? []) {
    if (!plot.checkVisibility()) continue;
    const its = (await view).export("svg");
    parts.push(`<svg ${place(plot.getBoundingClientRect())}>${its.ctx.get_serialized_svg(true).replace(/^<\?.*?\?>/, "")}</svg>`);
  }
  const walk = document.createTreeWalker(figure, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data.trim() ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP;
    if (node.matches(".tools, .numbers, script") || !node.checkVisibility()) return NodeFilter.FILTER_REJECT;
    if (node.parentElement.closest("svg") || (chart && node.parentElement.closest(".plot"))) return NodeFilter.FILTER_REJECT;
    return node.matches("svg, .map, .scale") ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP;
  });
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (node.nodeType === Node.TEXT_NODE) parts.push(...linesOf(node, box));
    else if (node.matches(".map")) parts.push(mapOf(node, place(node.getBoundingClientRect())));
    else if (node.matches(".scale")) parts.push(scaleOf(node, node.getBoundingClientRect(), box));
    else parts.push(`<svg overflow="visible" ${place(node.getBoundingClientRect())}>${withStyle(node)}</svg>`);
  }
  const ground = colourOf("var(--ground)", document.body);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width}" height="${box.height}"><rect width="100%" height="100%" fill="${ground}"/>${parts.join("")}</svg>`;
}

/** What is in an SVG of the page, without need of the page's style. */
function withStyle(svg) {
  const copy = svg.cloneNode(true);
  const places = all("*", svg);
  all("*", copy).forEach((element, i) => {
    const style = getComputedStyle(places[i]);
    for (const name of DRAWN_BY) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  return [...copy.childNodes].map((node) => new XMLSerializer().serializeToString(node)).join("");
}

/** A text, a line each as the page breaks it. */
function linesOf(node, box) {
  const style = getComputedStyle(node.parentElement), range = document.createRange(), lines = [];
  for (const {index, 0: word} of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const {left, top, height} = range.getBoundingClientRect();
    if (lines.at(-1)?.top === top) lines.at(-1).words.push(word);
    else lines.push({left, top, height, words: [word]});
  }
  return lines.map(({left, top, height, words}) =>
    `<text x="${left - box.left}" y="${top - box.top + 0.8 * height}" font-family="sans-serif" font-size="${style.fontSize}" font-weight="${style.fontWeight}" fill="${style.color}">${escaped(words.join(" "))}</text>`);
}

/** The part of a sheet of maps that is seen. */
function mapOf(node, at) {
  const style = getComputedStyle(node), of = (name) => Number(style.getPropertyValue(name) || 0);
  const [layers, epochs] = [of("--layers"), of("--epochs")];
  const url = escaped(/url\("(.*)"\)/.exec(style.backgroundImage)[1]);
  return `<svg ${at} viewBox="${of("--layer")} ${of("--epoch")} 1 1"><image href="${url}" width="${layers}" height="${epochs}" preserveAspectRatio="none" style="image-rendering:pixelated"/></svg>`;
}

function scaleOf(node, {left, top, width, height}, box) {
  const colours = getComputedStyle(node).backgroundImage.match(/rgb\([^)]*\)/g), wide = width / colours.length;
  return colours.map((colour, i) => `<rect x="${left - box.left + i * wide}" y="${top - box.top}" width="${wide + 0.5}" height="${height}" fill="${colour}"/>`).join("");
}

/** Print a figure alone: the browser's dialog saves it as PDF. */
function printOnly(svg) {
  const sheet = make("div", {id: "sheet", innerHTML: svg});
  document.body.append(sheet);
  const {width, height} = sheet.firstElementChild.getBoundingClientRect();
  sheet.append(make("style", {textContent: `@page { size: ${Math.ceil(width) + 2}px ${Math.ceil(height) + 2}px; margin: 0; }`}));
  document.body.classList.add("one");
  addEventListener("afterprint", () => { sheet.remove(); document.body.classList.remove("one"); }, {once: true});
  print();
}

/** Buttons that take a figure along. */
function downloads(figure, name, bar) {
  const button = (text, title, act) => {
    const its = make("button", {type: "button", textContent: text, title});
    its.addEventListener("click", async () => act(await svgOf(figure)));
    return its;
  };
  bar.append(
    "Figure as",
    button("SVG", "download", (svg) => make("a", {href: `data:image/svg+xml,${encodeURIComponent(svg)}`, download: `${name}.svg`}).click()),
    button("PDF", "print it: save as PDF", printOnly),
  );
}

for (const figure of all("figure")) {
  const bar = make("div", {className: "tools"});
  downloads(figure, figure.id || nameOf(figure, "f"), bar);
  figure.append(bar);
}

window.addEventListener("hashchange", read);
read();
show();
