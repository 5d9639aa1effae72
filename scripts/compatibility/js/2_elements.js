// Small helpers for elements. Text from outside becomes text nodes only.
function byId(name) {
  return document.getElementById(name);
}

function make(tag, options = {}, ...children) {
  const { text, ...attributes } = options;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) element.textContent = text;
  element.append(...children.filter(Boolean));
  return element;
}

function fillSelect(select, options) {
  select.replaceChildren(...options.map(([value, text]) => make("option", { value, text })));
}

function says(id, text, wrong = false) {
  const place = byId(id);
  place.textContent = text;
  place.classList.toggle("wrong", wrong);
}

// A field in which someone types keeps its text.
function put(id, value) {
  if (document.activeElement !== byId(id)) byId(id).value = value;
}

let lastCommand = 0;

function commandLine(title, text) {
  const id = `command-${++lastCommand}`;
  const button = make("button", { type: "button", class: "copy", text: "Copy", "aria-label": `Copy: ${title}`, "aria-describedby": id });
  button.addEventListener("click", () => copyText(text, button, id));
  return make("div", { class: "command" }, make("span", { text: title }), make("code", { id }, ...wordsOf(text)), button);
}

// Lines end between the words of a command, not at the hyphens of an option.
function wordsOf(text) {
  return text.split(/( )/).map((word) => (word === " " ? word : make("span", { text: word })));
}

async function copyText(text, button, id) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    // Pages of file:// may lack the clipboard: the old way selects the text and copies the selection.
    const selection = getSelection(), range = document.createRange();
    range.selectNodeContents(byId(id));
    selection.removeAllRanges();
    selection.addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  byId("announce").textContent = done ? "Copied the command." : "The command is selected. Press Ctrl+C.";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
