"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  all("[hidden]").forEach((element) => element.removeAttribute("hidden"));

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return "key" in cell.dataset ? cell.dataset.key : cell.firstChild ? cell.firstChild.textContent.trim() : "";
  };
  const compare = (one, other) => {
    const [a, b] = [one, other].map((text) => (text === "" || text === "?" ? NaN : Number(text.replaceAll(",", ""))));
    if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
    return one.localeCompare(other, "en", { numeric: true });
  };
  const sort = (head) => {
    const table = head.closest("table");
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const known = (key) => key !== "" && key !== "?";
    const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row, column), row]);
    rows.sort(([a], [b]) => known(b) - known(a) || (down ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  all("th").forEach((head) => {
    if (head.classList.contains("picture")) return;
    head.tabIndex = 0;
    head.classList.add("sorts");
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(head);
    });
  });

  const filter = (id) => {
    const box = document.querySelector(`[data-filter="${id}"]`);
    const bad = document.querySelector(`[data-bad="${id}"]`);
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...document.getElementById(id).tBodies[0].rows];
    let shown = 0;
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || Boolean(bad && bad.checked && !row.classList.contains("bad"));
      shown += row.hidden ? 0 : 1;
    });
    const count = document.querySelector(`[data-count="${id}"]`);
    count.textContent = shown < rows.length ? `${shown} of ${rows.length}` : "";
  };
  all("[data-filter]").forEach((box) => box.addEventListener("input", () => filter(box.dataset.filter)));
  all("[data-bad]").forEach((box) => box.addEventListener("change", () => filter(box.dataset.bad)));
  addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.hidden) return;
    const id = target.closest("table").id;
    document.querySelector(`[data-filter="${id}"]`).value = "";
    const bad = document.querySelector(`[data-bad="${id}"]`);
    if (bad) bad.checked = false;
    filter(id);
    target.scrollIntoView();
  });

  all("time").forEach((element) => {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.title += `\n${at.toLocaleString("sv", { timeZoneName: "short" })} where you read it`;
  });
  all("[data-since]").forEach((element) => {
    if (!(Date.now() - Date.parse(element.dataset.made) > 120000)) return;
    const minutes = Math.floor((Date.now() - Date.parse(element.dataset.since)) / 60000);
    const [large, small, names] = minutes < 1440 ? [Math.floor(minutes / 60), minutes % 60, ["h", "min"]] : [Math.floor(minutes / 1440), Math.floor(minutes % 1440 / 60), ["d", "h"]];
    element.textContent = `, now ${large ? `${large} ${names[0]} ` : ""}${small} ${names[1]}`;
  });

  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  all("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      select(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }));
})();
