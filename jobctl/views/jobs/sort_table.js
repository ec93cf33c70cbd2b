// A click on a heading of a table with the class "sortable" sorts the rows by its column, a second one the other way round. A heading is a
// button, so a keyboard reaches and presses it. Columns with data-kind="number" go by the data-number of their cells; a cell without it
// has no figure and comes last both ways. Other columns go by their text. Rows that are equal keep their order.
"use strict";

function valueOf(row, column, isNumber) {
  const cell = row.cells[column];
  if (!isNumber) {
    return cell.textContent;
  }
  return "number" in cell.dataset ? Number(cell.dataset.number) : null;
}

function compareValues(a, b, isNumber, sign) {
  if (a === null || b === null) {
    return (a === null) - (b === null);
  }
  return sign * (isNumber ? a - b : a.localeCompare(b, "en", {numeric: true}));
}

function sortRows(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const heading = headings[column];
  const isNumber = heading.dataset.kind === "number";
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of headings) {
    other.removeAttribute("aria-sort");
  }
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareValues(valueOf(a, column, isNumber), valueOf(b, column, isNumber), isNumber, descending ? -1 : 1));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => sortRows(table, column));
    heading.replaceChildren(button);
  });
}
