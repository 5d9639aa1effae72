// The heat map: GPU generations by driver branches, for one framework on the system of the form.
let overview = "torch";
let place = [0, 0];
const LEVELS = ["no build", "9 or more feature releases older", "4 to 8 older", "1 to 3 older", "newest"];

function showOverview() {
  const heat = data.heat[state.system][overview], system = systems[state.system];
  const glibc = system.glibc[0] === null ? "" : `, glibc ${system.glibc[0]} or newer`;
  byId("overview-says").textContent =
    `Newest ${FRAMEWORKS[overview]} with CUDA by GPU and driver branch. ${system.title}${glibc}, any Python. Select a cell to see why; arrow keys move between cells.`;
  if (!heat.rows.length) {
    byId("heat").replaceChildren(make("p", { class: "quiet", text: `${FRAMEWORKS[overview]} has no GPU build for ${system.title}.` }));
    return;
  }
  const head = make("tr", {}, make("th", { scope: "col", text: "GPU \\ driver branch" }), ...heat.columns.map(([first, last]) =>
    make("th", { scope: "col", text: !last ? `${first} +` : first === last ? first : `${first}–${last}` })));
  const rows = heat.rows.map(([generation, capabilities, cells], r) => make("tr", {},
    make("th", { scope: "row" }, `${generation} `, make("b", { text: capabilities.join(", ") }), make("span", { text: exampleOf(capabilities) })),
    ...cells.map(([version, level], c) => make("td", {}, cellOf(heat, r, c, version, level)))));
  const table = make("table", { class: "heat" }, make("caption", { class: "unseen", text: `${FRAMEWORKS[overview]} by GPU generation and driver branch` }),
    make("thead", {}, head), make("tbody", {}, ...rows));
  byId("heat").replaceChildren(table);
  place = [Math.min(place[0], heat.rows.length - 1), Math.min(place[1], heat.columns.length - 1)];
  cellAt(...place).tabIndex = 0;
  showNewest(table);
}

// Narrow screens show the newest drivers first, or the cell of the form.
function showNewest(table) {
  const current = table.querySelector("[aria-current]"), box = byId("heat");
  box.scrollLeft = current ? current.offsetLeft - box.clientWidth / 2 : box.scrollWidth;
}

// A board that many know of the newest capability of a row.
function exampleOf(capabilities) {
  const board = boards.find((b) => b.capability === capabilities.at(-1));
  return board ? board.name.replace("GeForce ", "") : "";
}

function cellOf(heat, r, c, version, level) {
  const [generation, capabilities] = heat.rows[r], [first, last, driver] = heat.columns[c];
  const label = `${generation} ${capabilities.join(", ")}, driver ${first}${last && last !== first ? ` to ${last}` : last ? "" : " or newer"}: `
    + (version ? `${FRAMEWORKS[overview]} ${version}` : "no build");
  const here = capabilities.includes(state.capability) && state.driver !== null && heat.columns.findLastIndex(
    (column) => compare(column[0], state.driver) <= 0) === c;
  const cell = make("button", { type: "button", class: "cell", "data-level": level, "data-r": r, "data-c": c, tabindex: -1,
    "aria-label": label, "aria-current": here ? "true" : null, text: version || "none" });
  cell.addEventListener("click", () => {
    place = [r, c];
    const capability = capabilities.includes(state.capability) ? state.capability : capabilities[0];
    const name = capability === state.capability ? state.name : null;
    change({ capability, name, driver, wrongDriver: null, framework: overview, python: null, many: null, glibc: systems[state.system].glibc[0] });
    cellAt(r, c).focus({ preventScroll: true });
    byId("answer-title").scrollIntoView({ block: "nearest" });
  });
  return cell;
}

function cellAt(r, c) {
  return byId("heat").querySelector(`[data-r="${r}"][data-c="${c}"]`);
}

function startOverview() {
  byId("overview-framework").append(...Object.entries(FRAMEWORKS).map(([value, name]) => {
    const radio = make("input", { type: "radio", name: "overview", value, checked: value === overview });
    radio.addEventListener("change", () => { overview = value; showOverview(); });
    return make("label", {}, radio, name);
  }));
  byId("legend").append(...LEVELS.map((text, level) => make("li", {}, make("span", { class: "cell", "data-level": level, "aria-hidden": "true" }), text)).reverse());
  byId("heat").addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const next = step && cellAt(place[0] + step[0], place[1] + step[1]);
    if (!next) return;
    event.preventDefault();
    cellAt(...place).tabIndex = -1;
    place = [place[0] + step[0], place[1] + step[1]];
    next.tabIndex = 0;
    next.focus();
  });
  byId("overview").hidden = false;
}
