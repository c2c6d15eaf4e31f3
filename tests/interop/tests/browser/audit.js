// Returns what is wrong with the page as it is shown: layout, names of controls, contrast of text.
(() => {
  const problems = [];
  const named = (element) => `<${element.localName}${element.className ? ` class="${element.className.baseVal ?? element.className}"` : ""}> ${(element.textContent ?? "").trim().slice(0, 40)}`;
  const isShown = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return box.width > 1 && box.height > 1 && style.visibility !== "hidden" && !element.closest(".unseen, .skip");
  };

  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) {
    const widest = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, pre"));
    problems.push(`the page is ${width} px wide in a window of ${innerWidth}: ${widest.slice(0, 3).map(named).join("; ")}`);
  }
  for (const landmark of ["header", "nav", "main", "footer"]) {
    if (!document.querySelector(landmark)) problems.push(`no ${landmark}`);
  }
  if (document.querySelectorAll("main h1").length !== 1) problems.push("main has not exactly one heading of the first level");
  if (!document.documentElement.lang) problems.push("no language");
  for (const image of document.querySelectorAll("img")) {
    if (!image.hasAttribute("alt")) problems.push("an image without alt");
  }
  for (const picture of document.querySelectorAll("svg")) {
    if (!picture.getAttribute("aria-label") && !picture.closest("[aria-hidden]")) problems.push("a picture without a label");
  }
  for (const control of document.querySelectorAll("button, a, input, select, summary")) {
    const name = control.getAttribute("aria-label") || control.textContent.trim() || control.querySelector("img[alt]")?.alt || [...(control.labels ?? [])].map((label) => label.textContent.trim()).join("");
    if (isShown(control) && !name) problems.push(`without a name: ${named(control)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  if (new Set(ids).size !== ids.length) problems.push("an id is used twice");
  for (const header of document.querySelectorAll("thead th")) {
    if (header.scope !== "col") problems.push("the head of a column without scope");
  }

  const colour = (text) => {
    const numbers = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return { red: numbers[0], green: numbers[1], blue: numbers[2], alpha: numbers[3] ?? 1 };
  };
  const luminance = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.alpha > 0) return found;
    }
    return colour("rgb(255, 255, 255)");
  };
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    if (!hasText || !isShown(element) || element.closest("svg, :disabled, noscript")) continue;
    const [one, other] = [luminance(colour(getComputedStyle(element).color)), luminance(background(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(2)}: ${named(element)}`);
  }
  return problems;
})()
