// The field for the GPU: a combobox as in the ARIA Authoring Practices, with a list that narrows while one types.
const MOST = 60;
let shown = [], active = -1;

function plain(text) {
  return text.toLowerCase().replace(/\b(nvidia|geforce|tesla|quadro)\b/g, " ").replace(/[^a-z0-9.]+/g, " ").trim();
}

function found(text) {
  const system = systems[state.system];
  const words = plain(text).split(" ").filter(Boolean);
  const here = boards.filter((b) => system.capabilities.includes(b.capability));
  const matches = here.filter((b) => {
    const having = `${plain(b.name)} ${b.capability} ${b.generation.toLowerCase()}`;
    return words.every((word) => having.includes(word));
  });
  const capabilities = system.capabilities.filter((c) => words.length === 0 || words.every((w) => `${c} ${generations[c].toLowerCase()}`.includes(w)));
  matches.sort((a, b) => distance(a.name, text) - distance(b.name, text));
  const rows = matches.map((b) => ({ capability: b.capability, name: b.name, label: b.name, more: `${b.generation}, ${b.capability}` }));
  const plainRows = capabilities.map((c) => ({ capability: c, name: null, label: `Capability ${c}`, more: `any ${generations[c]} ${c}` }));
  const numeric = /^\d/.test(text.trim()) && capabilities.length > 0;
  return (numeric ? [...plainRows, ...rows] : [...rows, ...plainRows]).slice(0, MOST);
}

// How far a name is from what was typed: "rtx 4090" and "4090" are nearest to RTX 4090, not to RTX 4090 D.
function distance(name, text) {
  const having = plain(name), wanted = plain(text);
  return having === wanted ? 0 : having.endsWith(` ${wanted}`) ? 1 : having.startsWith(wanted) ? 2 : having.includes(wanted) ? 3 : 4;
}

function openList(text) {
  const input = byId("gpu"), list = byId("gpus");
  shown = found(text);
  active = -1;
  list.replaceChildren(...shown.map((row, i) => {
    const option = make("li", { role: "option", id: `gpu-${i}`, "aria-selected": "false" },
      make("span", { text: row.label }), make("small", { text: row.more }));
    option.addEventListener("mousedown", (event) => { event.preventDefault(); pick(row); });
    return option;
  }));
  list.hidden = shown.length === 0;
  input.setAttribute("aria-expanded", String(!list.hidden));
  input.removeAttribute("aria-activedescendant");
}

function closeList() {
  byId("gpus").hidden = true;
  byId("gpu").setAttribute("aria-expanded", "false");
  byId("gpu").removeAttribute("aria-activedescendant");
}

function moveTo(place) {
  if (!shown.length) return;
  const options = byId("gpus").children;
  if (active >= 0) options[active].setAttribute("aria-selected", "false");
  active = (place + shown.length) % shown.length;
  options[active].setAttribute("aria-selected", "true");
  options[active].scrollIntoView({ block: "nearest" });
  byId("gpu").setAttribute("aria-activedescendant", `gpu-${active}`);
}

function pick(row) {
  closeList();
  change({ capability: row.capability, name: row.name, many: null });
}

function labelOf(question) {
  return question.name || (question.capability ? `Capability ${question.capability}` : "");
}

// What was typed without choosing from the list: taken where it means one GPU.
function settle() {
  const text = byId("gpu").value.trim();
  closeList();
  if (text === labelOf(state)) return;
  if (!text) { change({ capability: null, name: null, many: null }); return; }
  const rows = found(text);
  const capability = rows.find((r) => r.name === null && (r.capability === text || plain(r.label) === plain(text)));
  const near = [0, 1].map((far) => rows.filter((r) => r.name && distance(r.name, text) === far));
  const one = [...near, rows].find((some) => some.length === 1);
  const meant = capability || (one && one[0]);
  if (meant) { pick(meant); return; }
  byId("gpu").setAttribute("aria-invalid", "true");
  says("gpu-says", rows.length ? `${text} means several GPUs. Choose one from the list.`
    : `No GPU called ${text} is known. Give its compute capability, such as 8.6.`, true);
}

function startCombobox() {
  const input = byId("gpu");
  input.addEventListener("input", () => openList(input.value));
  input.addEventListener("click", () => openList(input.value === labelOf(state) ? "" : input.value));
  input.addEventListener("blur", settle);
  input.addEventListener("keydown", (event) => {
    const open = !byId("gpus").hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) openList(input.value === labelOf(state) ? "" : input.value);
      moveTo(event.key === "ArrowDown" ? active + 1 : active < 0 ? shown.length - 1 : active - 1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && active >= 0) pick(shown[active]); else settle();
    } else if (event.key === "Escape") {
      if (open) closeList(); else { input.value = labelOf(state); }
    }
  });
}
