// What the theme leaves undone for readers without a mouse or without eyes.

// A search that opens as a dialog has a name.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");

// What scrolls sideways can be reached with Tab; what fits is no stop on the way.
function reachScrollers() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .tree-scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", reachScrollers); // the theme has wrapped the tables by then
addEventListener("resize", reachScrollers);
