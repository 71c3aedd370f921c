// A click on a column's head sorts the rows of its table by that column.
for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const key = (row, place) => {
    const text = row.cells[place].textContent.replace("−", "-");
    return place && !isNaN(parseFloat(text)) ? parseFloat(text) : place ? -Infinity : text;
  };
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    if (!button.textContent.trim()) button.textContent = place ? "ours" : "row";
    head.append(button);
    button.addEventListener("click", () => {
      const order = head.ariaSort === "descending" ? "ascending" : "descending";
      heads.forEach((other) => (other.ariaSort = null));
      head.ariaSort = order;
      const sign = (order === "descending") === place > 0 ? -1 : 1;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * (key(a, place) > key(b, place) ? 1 : key(a, place) < key(b, place) ? -1 : 0));
      table.tBodies[0].append(...rows);
    });
  });
}
