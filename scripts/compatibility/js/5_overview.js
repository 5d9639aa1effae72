// The heat map: GPU generations by driver branches, for one framework on the system of the form.
let overview = "torch";
let place = [0, 0];
let drawn = "";
const LEVELS = ["no build", "9 or more feature releases older", "4 to 8 older", "1 to 3 older", "newest"];

// The table is drawn for each framework and system, and marks the cell of the form.
function showOverview() {
  if (drawn !== `${state.system} ${overview}`) drawOverview();
  drawn = `${state.system} ${overview}`;
  const { columns, rows } = data.heat[state.system][overview];
  const column = state.release === null ? -1 : columns.findLastIndex((c) => compare(c[0], state.release) <= 0);
  const row = rows.findIndex(([, capabilities]) => capabilities.includes(state.capability));
  const now = byId("heat").querySelector("[aria-current]"), next = row < 0 ? null : cellAt(row, column);
  if (now === next) return;
  if (now) now.removeAttribute("aria-current");
  if (!next) return;
  next.setAttribute("aria-current", "true");
  byId("heat").scrollLeft = next.offsetLeft - byId("heat").clientWidth / 2;
}

function drawOverview() {
  const heat = data.heat[state.system][overview], system = systems[state.system];
  const glibc = system.glibc[0] === null ? "" : `, glibc ${system.glibc[0]} or newer`;
  byId("overview-says").textContent =
    `Newest ${FRAMEWORKS[overview]} with CUDA by GPU and driver branch. ${system.title}${glibc}, any Python. Select a cell: its answer is above, under Builds. Arrow keys move between cells.`;
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
  byId("heat").scrollLeft = byId("heat").scrollWidth; // narrow screens show the newest drivers first
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
  const cell = make("button", { type: "button", class: "cell", "data-level": level, "data-r": r, "data-c": c, tabindex: -1,
    "aria-label": label, text: version || "none" });
  cell.addEventListener("click", () => askOf(r, c, capabilities, driver));
  return cell;
}

// A cell is a question. The page moves to its answer, from which a button leads back.
function askOf(r, c, capabilities, driver) {
  cellAt(...place).tabIndex = -1;
  place = [r, c];
  cellAt(r, c).tabIndex = 0;
  const capability = capabilities.includes(state.capability) ? state.capability : capabilities[0];
  const name = capability === state.capability ? state.name : null;
  change({ ...BLANK, system: state.system, glibc: systems[state.system].glibc[0], capability, name, driver, framework: overview });
  byId("back").hidden = false;
  byId("answer-title").focus({ preventScroll: true });
  byId("answer").scrollIntoView({ block: "start" });
}

function goBack() {
  byId("back").hidden = true;
  cellAt(...place).focus({ preventScroll: true });
  byId("overview").scrollIntoView({ block: "start" });
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
  byId("back").addEventListener("click", goBack);
  byId("overview").hidden = false;
}
