// The field for the GPU: a combobox as in the ARIA Authoring Practices, with a list that narrows while one types.
const MOST = 60;
let shown = [], active = -1;

// The rules of gpuenv resolve --gpu (find_gpu of provision/resolve/boards.py), with its patterns.
const [MAKERS, FORMS] = data.names.map((pattern) => new RegExp(pattern, "g"));

function plain(text) {
  return text.toLowerCase().replace(MAKERS, " ").split(" ").filter(Boolean).join(" ");
}

function joined(text) {
  return plain(text).replaceAll(" ", "");
}

function bare(text) {
  return plain(text).replace(FORMS, "").replaceAll(" ", "");
}

function gpuNamed(typed) {
  const text = typed.trim().replace(/^capability /i, "");
  if (/^\d+\.\d+$/.test(text)) return Object.hasOwn(generations, text) ? { capability: text, name: null } : null;
  const exact = boards.find((b) => joined(b.name) === joined(text));
  if (exact) return { capability: exact.capability, name: exact.name };
  const formed = bare(text) ? boards.filter((b) => bare(b.name) === bare(text)) : [];
  if (formed.length && isOne(formed)) return { capability: formed[0].capability, name: text };
  const words = plain(text).split(" ");
  if (!words.some((word) => /\d$/.test(word))) return null;
  const having = boards.filter((b) => words.every((word) => plain(b.name).split(" ").includes(word)));
  if (!having.length || !isOne(having)) return null;
  const { capability, name } = having.reduce((one, other) => (other.name.length < one.name.length ? other : one));
  return { capability, name };
}

function isOne(some) {
  return new Set(some.map((b) => b.capability)).size === 1;
}

// The rows of the list: boards and capabilities with all words that were typed.
function found(text) {
  const system = systems[state.system];
  const words = text.toLowerCase().split(/[\s_-]+/).filter(plain);
  const matches = boards.filter((b) => {
    const having = `${b.name} ${b.capability} ${b.generation}`.toLowerCase();
    return system.capabilities.includes(b.capability)
      && words.every((word) => having.includes(word) || joined(b.name).includes(word));
  });
  const capabilities = system.capabilities.filter((c) => words.every((w) => `${c} ${generations[c].toLowerCase()}`.includes(w)));
  matches.sort((a, b) => distance(a.name, text) - distance(b.name, text));
  const rows = matches.map((b) => ({ capability: b.capability, name: b.name, label: b.name, more: `${b.generation}, ${b.capability}` }));
  const plainRows = capabilities.map((c) => ({ capability: c, name: null, label: `Capability ${c}`, more: `any ${generations[c]} ${c}` }));
  const numeric = /^\d/.test(text.trim()) && capabilities.length > 0;
  return (numeric ? [...plainRows, ...rows] : [...rows, ...plainRows]).slice(0, MOST);
}

// How far a name is from what was typed: "rtx 4090" and "4090" are nearest to RTX 4090, not to RTX 4090 D.
function distance(name, text) {
  const having = joined(name), wanted = joined(text);
  return having === wanted ? 0 : having.endsWith(wanted) ? 1 : having.startsWith(wanted) ? 2 : having.includes(wanted) ? 3 : 4;
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
  byId("gpu").value = labelOf(row);
  change({ capability: row.capability, name: row.name, many: null, wrongGpu: null });
}

function labelOf({ name, capability }) {
  return name || (capability ? `Capability ${capability}` : "");
}

// The answers follow each key: what was typed is a GPU where gpuenv would take it for one.
function readGpu() {
  const text = byId("gpu").value.trim(), gpu = text ? gpuNamed(text) : null;
  change({ capability: null, name: null, many: null, wrongGpu: text && !gpu ? text : null, ...gpu });
}

function startCombobox() {
  const input = byId("gpu");
  input.addEventListener("input", () => { openList(input.value); readGpu(); });
  input.addEventListener("click", () => openList(input.value === labelOf(state) ? "" : input.value));
  input.addEventListener("blur", () => { closeList(); showForm(); });
  input.addEventListener("keydown", (event) => {
    const open = !byId("gpus").hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) openList(input.value === labelOf(state) ? "" : input.value);
      moveTo(event.key === "ArrowDown" ? active + 1 : active < 0 ? shown.length - 1 : active - 1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && active >= 0) pick(shown[active]); else { closeList(); input.value = state.wrongGpu || labelOf(state); }
    } else if (event.key === "Escape") {
      if (open) closeList(); else { input.value = labelOf(state); readGpu(); }
    }
  });
}
