// What the theme makes in the browser gets names, and can be reached by keys. Sentences in tables get room on a phone.
"use strict";
const name = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), .md-typeset pre > code:not([tabindex])").forEach(
    (one) => one.setAttribute("tabindex", "0"));
  document.querySelectorAll(".md-typeset td:not(.long)").forEach((one) => {
    if (one.textContent.length > 60) one.classList.add("long");
  });
  document.querySelectorAll("nav.md-code__nav").forEach((one, n) => {
    if (!one.hasAttribute("aria-label")) one.setAttribute("aria-label", `Code ${n + 1}`);
  });
};
new MutationObserver(name).observe(document.documentElement, { childList: true, subtree: true });
name();
