// Elements, without markup in strings.

export function make(tag, name, content) {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = content;
  return element;
}
