"""Style the HTML pages for narrow and wide screens, light and dark.

BASE is for all pages, STYLE for the report. `docs/compatibility.html` has BASE and further rules.
"""

from __future__ import annotations

BASE = """
:root { --page: #f7f7f5; --card: #ffffff; --ink: #1c1e21; --quiet: #5c6168; --line: #d9dad7;
  --track: #e8e9e6; --pass: #1a7f45; --warn: #8a5a00; --fail: #b3261e; --skip: #5c6168; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181b; --card: #1f2226; --ink: #e6e7e9; --quiet: #a2a8b0; --line: #383c42;
    --track: #32363c; --pass: #5fcf8f; --warn: #e8b04b; --fail: #ff8a80; --skip: #a2a8b0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 8px 0; }
h2 { font-size: 1.15rem; margin: 40px 0 8px; padding-bottom: 4px; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 24px 0 4px; }
h4 { font-size: .9rem; margin: 0 0 4px; }
p { margin: 4px 0; }
code, .path, cite, .number { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: .85em; font-style: normal; }
.quiet, cite, .seconds, summary, footer { color: var(--quiet); }
.quiet { font-weight: normal; font-size: .9rem; }
.mark { display: inline-block; padding: 0 10px; border: 1.5px solid currentColor; border-radius: 999px;
  font-weight: 600; font-size: .85rem; line-height: 1.6; text-align: center; }
.pass { color: var(--pass); } .warn { color: var(--warn); }
.fail, .outside { color: var(--fail); } .skip { color: var(--skip); }
.hint, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 16px; margin: 12px 0; }
.hint { border-left: 4px solid var(--fail); }
.card h3 { margin-top: 0; }
.evidence { margin: 6px 0; padding-left: 20px; font-size: .9rem; }
.seconds { text-align: right; font-variant-numeric: tabular-nums; font-size: .9rem; }
summary { cursor: pointer; font-size: .85rem; }
footer { margin-top: 48px; font-size: .85rem; }
@media print { body { background: #fff; } .card, .hint { break-inside: avoid; } }
"""

STYLE = (
    BASE
    + """
header .mark { font-size: 1.1rem; }
.stages { list-style: none; padding: 0; margin: 0; }
.stage { display: grid; grid-template-columns: 76px 190px 72px 1fr; gap: 4px 12px; align-items: start;
  padding: 8px 0; border-bottom: 1px solid var(--line); }
.cases { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr));
  gap: 16px 24px; margin-top: 12px; }
.off { border-left: 4px solid var(--fail); padding-left: 12px; }
.result { display: grid; grid-template-columns: 92px 1fr 108px; gap: 8px; align-items: center;
  font-size: .85rem; line-height: 1.7; }
.bar { position: relative; height: 10px; border-radius: 3px; background: var(--track); overflow: hidden; }
.bar i { position: absolute; inset: 0 auto 0 0; background: currentColor; }
.bar::after { content: ""; position: absolute; top: 0; bottom: 0; left: 75%; width: 2px; margin-left: -1px;
  background: var(--ink); }
.number { text-align: right; white-space: nowrap; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; margin-top: 8px; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0;
  border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
thead th { color: var(--quiet); font-weight: normal; white-space: nowrap; }
td[data-is=version], td[data-is=where], td[data-is=seconds] { white-space: nowrap; }
@media (max-width: 720px) {
  .stage { grid-template-columns: 76px 1fr auto; }
  .stage .detail { grid-column: 1 / -1; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--line); }
  tbody th, td { display: block; border: 0; padding: 1px 0; }
  td::before { content: attr(data-is) ": "; color: var(--quiet); }
}
"""
)
