"""What a page must be for everybody, as JavaScript: each gives the outer HTML of what is not so."""

UNNAMED = """() => [...document.querySelectorAll(
        "input, select, textarea, button, [role=tab], [role=log], summary, progress, img")]
    .filter(one => one.checkVisibility())
    .filter(one => !(one.labels?.length || one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
        || one.textContent.trim() || one.hasAttribute("alt")))
    .map(one => one.outerHTML.slice(0, 200))"""

FAINT = """() => {
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(one => one / 255)
        .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = node => {
        for (let at = node; at; at = at.parentElement) {
            const [r, g, b, a = 1] = parts(getComputedStyle(at).backgroundColor);
            if (a > 0.5) return [r, g, b];
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll("main *")]
        .filter(one => one.checkVisibility() && !one.disabled && !one.closest("svg"))
        .filter(one => [...one.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()))
        .map(one => [one, light(parts(getComputedStyle(one).color)), light(behind(one))])
        .filter(([, a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5)
        .map(([one]) => one.outerHTML.slice(0, 120));
}"""
