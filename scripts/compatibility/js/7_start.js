startForm();
startOverview();
change(readAddress());
addEventListener("hashchange", () => change({ ...BLANK, ...readAddress() }));
performance.mark("ready");
