// The question: what the form says, and the form as the question is.
const DRIVER = /^\d{3,4}(\.\d{1,6}){0,3}$/;
const GLIBC = /^2\.\d{1,3}$/;
const CAPABILITY = /^\d{1,2}\.\d{1,2}$/;
const BLANK = {
  capability: null, name: null, driver: null, system: "linux", glibc: systems.linux.glibc[0], python: null,
  framework: "all", many: null, wrongDriver: null, wrongGpu: null,
};
// The question, and in `release` the driver that it means.
let state = { ...BLANK, release: null };

function change(parts) {
  state = { ...state, ...parts };
  const system = systems[state.system];
  if (system.glibc[0] === null) state.glibc = null;
  else if (!state.glibc) state.glibc = system.glibc[0];
  state.release = releaseOf(system, state.driver);
  const fits = ({ capability }) => system.capabilities.includes(capability);
  if (state.capability && !fits(state)) Object.assign(state, { wrongGpu: labelOf(state), capability: null, name: null });
  const meant = state.wrongGpu && gpuNamed(state.wrongGpu);
  if (meant && fits(meant)) Object.assign(state, { wrongGpu: null, ...meant });
  showForm();
  showOverview();
  showAnswers();
  rememberInAddress();
}

function showForm() {
  const system = systems[state.system];
  showGpu(system);
  showDriver(system);
  byId("system").value = state.system;
  byId("glibc-field").hidden = byId("glibc-says").hidden = system.glibc[0] === null;
  fillSelect(byId("glibc"), system.glibc.map((floor, i) => [floor, i === 0 ? `${floor} or newer` : floor]));
  const place = glibcOf(system, state.glibc || "0");
  byId("glibc").value = place === null ? "" : system.glibc[place];
  byId("python").value = state.python || "";
  byId("framework").value = state.framework;
}

// A text that no GPU or driver has is wrong only when the field is left.
function mark(id, wrong) {
  put(id, wrong || (id === "gpu" ? labelOf(state) : state.driver || ""));
  const left = Boolean(wrong) && document.activeElement !== byId(id);
  byId(id).setAttribute("aria-invalid", String(left));
  return left;
}

function showGpu(system) {
  const wrong = state.wrongGpu;
  if (!mark("gpu", wrong)) {
    says("gpu-says", state.name ? `${generations[state.capability]}, compute capability ${state.capability}.`
      : "Several models in one host: paste the JSON of gpuenv detect below.");
  } else if (gpuNamed(wrong)) {
    says("gpu-says", `${wrong} is not a GPU of ${system.title} machines.`, true);
  } else {
    says("gpu-says", found(wrong).length ? `${wrong} means several GPUs. Choose one from the list.`
      : `No GPU called ${wrong} is known. Give its compute capability, such as 8.6.`, true);
  }
}

function showDriver(system) {
  const { driver, release, wrongDriver: wrong } = state;
  if (mark("driver", wrong)) {
    says("driver-says", /^\d{1,2}\.\d+$/.test(wrong)
      ? `${wrong} looks like a CUDA version. nvidia-smi shows the driver version as 'Driver Version'.`
      : `${wrong} is not a driver version. Write it like 550.54.15.`, true);
  } else if (driver) {
    const assumed = release === driver ? "" : `Read as ${release}, the first release of ${driver}. `;
    const cuda = system.speaks[intervalOf(system, release)];
    says("driver-says", `${assumed}This driver supports CUDA ${cuda || "older than 10.0"}.`);
  } else {
    says("driver-says", "nvidia-smi shows it as 'Driver Version'. Its branch, such as 580, is enough. Empty: any driver.");
  }
}

// The answers follow each key.
function readDriver() {
  const text = byId("driver").value.trim(), usable = !text || DRIVER.test(text);
  const many = state.many && state.many.length ? state.many : null;
  change({ driver: usable && text ? text : null, many, wrongDriver: usable ? null : text });
}

// --- the JSON of gpuenv detect -----------------------------------------------------------------------

function readDetected() {
  const text = byId("detected").value.trim();
  if (!text) { says("detected-says", "The text stays in this page."); return; }
  let wrong = null;
  try {
    const parts = questionOf(JSON.parse(text));
    says("detected-says", "Read.");
    change(parts);
  } catch (error) {
    wrong = error instanceof SyntaxError ? "This is not JSON. Paste all that gpuenv detect --json prints." : error.message;
    says("detected-says", wrong, true);
  }
  byId("detected").toggleAttribute("aria-invalid", Boolean(wrong));
  if (wrong) byId("detected").setAttribute("aria-invalid", "true");
}

function questionOf(found) {
  const target = found && (found.schema === "gpuenv.machine/1" ? found.target : found);
  if (!target || typeof target.platform !== "string" || !Array.isArray(target.gpus)) {
    throw new Error("This is JSON, but not of gpuenv detect: platform and gpus are missing.");
  }
  const windows = target.driver_os === "windows";
  const system = data.systems.find((s) => s.platform === target.platform && (s.driver_os === "windows") === (windows || s.key === "windows"));
  if (!system) throw new Error(`No GPU build is known for ${target.platform}.`);
  if (!target.gpus.length) throw new Error("This machine has no NVIDIA GPU. gpuenv makes a CPU environment here: gpuenv create --framework torch --device cpu");
  const gpus = target.gpus.map((g) => ({ capability: String(g.capability), name: knownName(String(g.name || "")) }));
  const wrong = gpus.some((g) => !CAPABILITY.test(g.capability)) || (target.driver && !DRIVER.test(target.driver))
    || (target.glibc && !GLIBC.test(target.glibc));
  if (wrong) throw new Error("This is JSON, but a capability, driver or glibc in it is no version.");
  const capabilities = [...new Set(gpus.map((g) => g.capability))];
  const names = [...new Set(gpus.map((g) => g.name))];
  const many = capabilities.length > 1 ? gpus.map(gpuWord) : null;
  return {
    capability: many ? null : capabilities[0], name: !many && names.length === 1 && names[0] ? names[0] : null,
    driver: target.driver || null, wrongDriver: null, system: system.key, glibc: target.glibc || null,
    wrongGpu: null, many: many || (unknown(target, system, capabilities[0]) ? [] : null),
  };
}

// The name that gpuenv has for a board; any other name stays.
function knownName(name) {
  const board = boards.find((b) => joined(b.name) === joined(name));
  return board ? board.name : name;
}

// What the tables have no place for: a GPU that no row knows, a libcuda that supports another CUDA than its driver.
function unknown(target, system, capability) {
  const speaks = system.speaks[intervalOf(system, releaseOf(system, target.driver || null))];
  return !system.capabilities.includes(capability) || Boolean(target.forward_compat)
    || Boolean(target.driver_cuda && speaks && compare(target.driver_cuda, speaks) > 0);
}

// --- the question in the address, to share it -----------------------------------------------------------

const KEPT = { gpu: "name", capability: "capability", driver: "driver", system: "system", glibc: "glibc", python: "python", framework: "framework" };

let remembering = null;

function rememberInAddress() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const words = new URLSearchParams();
    for (const [key, name] of Object.entries(KEPT)) {
      if (state[name] && state[name] !== BLANK[name]) words.set(key, state[name]);
    }
    history.replaceState(null, "", words.size ? `#${words}` : location.pathname + location.search);
  }, 200);
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1)), parts = {};
  for (const [key, name] of Object.entries(KEPT)) if (words.get(key)) parts[name] = words.get(key);
  const board = boards.find((b) => b.name === parts.name);
  if (board) parts.capability = board.capability; else delete parts.name;
  const usable = (!parts.system || Object.hasOwn(systems, parts.system)) && (!parts.python || data.pythons.includes(parts.python))
    && (!parts.driver || DRIVER.test(parts.driver)) && (!parts.glibc || GLIBC.test(parts.glibc))
    && (!parts.framework || Object.hasOwn(FRAMEWORKS, parts.framework))
    && (!parts.capability || Object.hasOwn(generations, parts.capability));
  return usable ? parts : {};
}

function startForm() {
  fillSelect(byId("system"), data.systems.map((s) => [s.key, s.title]));
  fillSelect(byId("python"), data.pythons.map((p) => [p || "", p || "Any"]));
  fillSelect(byId("framework"), [["all", "All"], ...Object.entries(FRAMEWORKS)]);
  byId("drivers").append(...[...data.branches].reverse().map((value) => make("option", { value })));
  startCombobox();
  byId("driver").addEventListener("input", readDriver);
  byId("driver").addEventListener("blur", showForm);
  byId("system").addEventListener("change", (e) => change({ system: e.target.value, many: null }));
  byId("glibc").addEventListener("change", (e) => change({ glibc: e.target.value, many: null }));
  byId("python").addEventListener("change", (e) => change({ python: e.target.value || null }));
  byId("framework").addEventListener("change", (e) => change({ framework: e.target.value }));
  byId("detected").addEventListener("input", readDetected);
  byId("clear").addEventListener("click", () => { byId("detected").value = ""; readDetected(); change({ ...BLANK }); byId("gpu").focus(); });
  byId("ask").addEventListener("submit", (e) => e.preventDefault());
  byId("ask").hidden = false;
}
