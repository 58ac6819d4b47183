(function () {
  "use strict";
  var box = document.getElementById("find"), told = document.getElementById("found");
  var items = Array.prototype.slice.call(document.querySelectorAll("[data-find]"));
  var texts = items.map(function (item) { return item.textContent.toLowerCase(); });
  var opened = [];
  function find() {
    var words = box.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
    opened.forEach(function (each) { each.open = false; });
    opened = [];
    items.forEach(function (item, number) {
      var fits = words.every(function (word) { return texts[number].indexOf(word) >= 0; });
      item.classList.toggle("hidden", !fits);
      shown += fits ? 1 : 0;
      if (fits && words.length) { unfold(item, words); }
    });
    told.textContent = words.length ? shown + " of " + items.length : "";
  }
  function unfold(item, words) {
    Array.prototype.forEach.call(item.querySelectorAll("details:not([open])"), function (each) {
      var text = each.textContent.toLowerCase();
      if (words.some(function (word) { return text.indexOf(word) >= 0; })) { each.open = true; opened.push(each); }
    });
  }
  var timer = 0;
  box.addEventListener("input", function () { clearTimeout(timer); timer = setTimeout(find, 120); });
  var all = document.getElementById("unfold");
  if (all) {
    all.addEventListener("click", function () {
      var every = document.querySelectorAll("details"), open = all.getAttribute("aria-pressed") !== "true";
      Array.prototype.forEach.call(every, function (each) { each.open = open; });
      all.setAttribute("aria-pressed", String(open));
      all.textContent = open ? "Fold all" : "Unfold all";
    });
  }
  if (box.value) { find(); }
})();
