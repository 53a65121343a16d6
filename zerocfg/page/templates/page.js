// Filters the settings, and opens what a link inside of the page points to. Without it everything is there as well.
(function () {
  "use strict";
  function open() {
    var target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", open);
  open();
  var filter = document.getElementById("filter");
  if (!filter) { return; }
  var words = document.getElementById("words");
  var only = document.getElementById("defaults");
  var count = document.getElementById("count");
  var groups = Array.from(document.querySelectorAll("details.group")).map(function (group) {
    return {
      element: group, open: group.open, standard: group.dataset.standard === "yes",
      rows: Array.from(group.querySelectorAll(".setting")).map(function (row) {
        var cells = Array.from(row.children).map(function (cell) { return cell.textContent; });
        return { element: row, text: cells.join(" ").toLowerCase() };
      })
    };
  });
  function apply() {
    var wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    var seen = 0, all = 0;
    groups.forEach(function (group) {
      var left = 0;
      group.rows.forEach(function (row) {
        var fits = !(only.checked && group.standard) && wanted.every(function (word) { return row.text.includes(word); });
        row.element.hidden = !fits;
        left += fits ? 1 : 0;
      });
      group.element.hidden = !left;
      group.element.open = wanted.length ? left > 0 : group.open;
      seen += left;
      all += group.rows.length;
    });
    var what = " " + (count.dataset.what || "settings");
    count.textContent = seen === all ? all + what : seen + " of " + all + what;
  }
  words.addEventListener("input", apply);
  only.addEventListener("change", apply);
  filter.hidden = false;
  apply();
})();
