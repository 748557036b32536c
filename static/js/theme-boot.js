// Before the first paint, as a blocking script: the chosen theme, else the system's (which needs no script at all).
(function () {
  "use strict";
  try {
    var theme = localStorage.getItem("chatui:theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("chatui:sidebar") === "closed") document.documentElement.dataset.sidebar = "closed";
  } catch (error) {
    // Storage may be forbidden: the system's theme holds.
  }
})();
