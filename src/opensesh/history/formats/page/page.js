(function () {
  "use strict";
  document.documentElement.classList.add("scripted");
  document.addEventListener("click", function (event) {
    var button = event.target.closest ? event.target.closest(".copy") : null;
    if (!button || !navigator.clipboard) { return; }
    navigator.clipboard.writeText(button.closest("figure").querySelector("pre").textContent).then(function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 2000);
    });
  });
  var box = document.getElementById("find"), count = document.getElementById("found");
  box.parentNode.classList.remove("hidden"); // useless without a script, so shown by it
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
    light(words);
    count.textContent = words.length ? shown + " of " + items.length : "";
  }
  function unfold(item, words) {
    Array.prototype.forEach.call(item.querySelectorAll("details:not([open])"), function (each) {
      var text = each.textContent.toLowerCase();
      if (words.some(function (word) { return text.indexOf(word) >= 0; })) { each.open = true; opened.push(each); }
    });
  }
  function light(words) {
    // Marks what was found without touching the page; where a browser cannot, nothing is marked.
    if (!window.CSS || !CSS.highlights) { return; }
    var marks = new Highlight(), left = 2000;
    items.forEach(function (item) {
      if (!words.length || left <= 0 || item.classList.contains("hidden")) { return; }
      var walker = document.createTreeWalker(item, NodeFilter.SHOW_TEXT), node;
      while ((node = walker.nextNode()) && left > 0) { left -= mark(node, words, marks); }
    });
    CSS.highlights.set("found", marks);
  }
  function mark(node, words, marks) {
    var text = node.data.toLowerCase(), count = 0;
    if (text.length !== node.data.length) { return 0; }
    words.forEach(function (word) {
      for (var at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        var range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        marks.add(range);
        count += 1;
      }
    });
    return count;
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
