"use strict";
// A file of texts, and its labels as CSV. As in app.js, nothing from outside is put into the page as HTML.

const CHUNK = 100; // texts in one request
const SHOWN = 10; // rows of the results on the page, and labels of each
const COLUMNS = ["row", "id", "rank", "label", "name", "score"]; // those of `bonsai predict`
let rows = []; // of the file: strings, or objects by column
let running = 0; // number of the last file, so that another one ends the work on it

// The text of a file: UTF-8, UTF-16 by its first bytes, or else Windows-1252.
function decoded(bytes) {
  const [a, b] = new Uint8Array(bytes.slice(0, 2));
  const wide = a === 0xff && b === 0xfe ? "utf-16le" : a === 0xfe && b === 0xff ? "utf-16be" : null;
  try {
    return new TextDecoder(wide || "utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// Rows of cells; cells in quotes may hold separators, line ends and doubled quotes.
function cellsOf(text, separator) {
  const found = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0] !== "") found.push(row);
    [row, cell] = [[], ""];
  };
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') cell += text[i += 1];
      else quoted = false;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === separator) [row, cell] = [[...row, cell], ""];
    else if (c === "\n") endRow();
    else if (c !== "\r") cell += c;
  }
  if (cell !== "" || row.length) endRow();
  return found;
}

function parsed(text, name) {
  const end = name.toLowerCase().split(".").pop();
  if (end === "json" && text.trimStart().startsWith("[")) return checked(JSON.parse(text));
  if (["json", "jsonl", "ndjson"].includes(end)) {
    return checked(text.split("\n").filter((line) => line.trim()).map((line, i) => {
      try {
        return JSON.parse(line);
      } catch (error) {
        throw new Error(`line ${i + 1} is not JSON: ${error.message}`);
      }
    }));
  }
  if (!["csv", "tsv"].includes(end)) return text.split(/\r?\n/).filter((line) => line.trim());
  const head = text.slice(0, text.indexOf("\n") + 1 || text.length);
  const most = (a, b) => (head.split(b).length > head.split(a).length ? b : a);
  const [columns, ...lines] = cellsOf(text, end === "tsv" ? "\t" : [",", ";", "\t"].reduce(most));
  return lines.map((line) => Object.fromEntries(columns.map((column, i) => [column.trim(), line[i] || ""])));
}

function checked(values) {
  const wrong = values.findIndex((value) => typeof value !== "string" && (typeof value !== "object" || value === null));
  if (wrong >= 0) throw new Error(`row ${count(wrong + 1)} is neither a text nor an object of fields`);
  return values;
}

// A choice of the column for each field of the model; plain texts need none.
function chooseColumns() {
  const names = [...new Set(rows.slice(0, 1000).flatMap((row) => (typeof row === "string" ? [] : Object.keys(row))))];
  const fields = model().fields.length ? model().fields : ["text"];
  const guess = (field) => names.find((name) => name.toLowerCase() === field.toLowerCase());
  const none = fields.every((field) => !guess(field));
  at("columns").replaceChildren(...(names.length ? fields : []).map((field, i) => {
    const label = element("label", `Column for ${field} `);
    const select = element("select");
    select.name = `column-${field}`;
    select.append(...["", ...names].map((name) => {
      const option = element("option", name || "none");
      option.value = name;
      return option;
    }));
    select.value = guess(field) || (none && i === 0 ? names.find((name) => !/^(row|id|labels?)$/i.test(name)) || "" : "");
    label.append(select);
    return label;
  }));
}

// The texts as the model takes them.
function documents() {
  const fields = model().fields;
  const columns = [...at("columns").querySelectorAll("select")].map((select) => select.value);
  const cell = (row, column) => {
    const value = column ? row[column] : "";
    return value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value);
  };
  if (rows.some((row) => typeof row !== "string") && columns.every((column) => !column)) {
    throw new Error("choose the column that holds the text");
  }
  return rows.map((row) => {
    if (typeof row === "string") return row;
    if (!fields.length) return cell(row, columns[0]);
    return Object.fromEntries(fields.map((field, i) => [field, cell(row, columns[i])]));
  });
}

const idOf = (row) => (typeof row === "string" ? "" : String(row.id ?? row.ID ?? row.key ?? ""));
const quotedCell = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
const csvLine = (cells) => cells.map((value) => quotedCell(String(value))).join(",");

// The lines of a row: one for each of its labels; a row without labels has a line, too.
function linesOf(number, row, labels) {
  const where = [number, idOf(row)];
  if (!labels.length) return [[...where, "", "", "", ""]];
  return labels.map((label, i) => {
    const name = label.name === label.label ? "" : label.name;
    return [...where, i + 1, label.label, name, label.score.toPrecision(6)];
  });
}

async function chooseFile() {
  const file = at("file").files[0];
  at("file-start").disabled = true;
  at("download").hidden = true;
  at("preview").replaceChildren();
  running += 1;
  if (!file) return;
  try {
    rows = parsed(decoded(await file.arrayBuffer()), file.name);
    chooseColumns();
    at("file-start").disabled = rows.length === 0;
    at("file-status").textContent = rows.length ? counted(rows.length, "text") : "There is no text in the file.";
  } catch (error) {
    rows = [];
    at("file-status").textContent = `Error: ${file.name}: ${error.message}`;
  }
}

async function labelFile() {
  running += 1;
  const number = running;
  const about = { k: limit("file-k"), threshold: at("file-threshold").checked ? "auto" : 0, model: at("model").value };
  const lines = [];
  const previews = [];
  at("download").hidden = true;
  at("progress").hidden = false;
  try {
    const texts = documents();
    for (let begin = 0; begin < texts.length; begin += CHUNK) {
      const answer = await ask("predict", { texts: texts.slice(begin, begin + CHUNK), ...about });
      if (number !== running) return;
      answer.results.forEach((labels, i) => {
        lines.push(...linesOf(begin + i + 1, rows[begin + i], labels));
        if (previews.length < SHOWN) previews.push(preview(begin + i + 1, texts[begin + i], labels));
      });
      at("progress").value = Math.min(1, (begin + CHUNK) / texts.length);
      at("file-status").textContent = `${count(Math.min(texts.length, begin + CHUNK))} of ${counted(texts.length, "text")}`;
    }
    if (at("download").href) URL.revokeObjectURL(at("download").href);
    // Spreadsheets recognise UTF-8 by the mark at the beginning.
    const content = `\ufeff${[COLUMNS, ...lines].map(csvLine).join("\r\n")}\r\n`;
    at("download").href = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
    at("download").hidden = false;
    at("file-status").textContent = `${counted(texts.length, "text")} done`;
    const rest = texts.length > SHOWN ? [element("p", `The first ${SHOWN} of ${counted(texts.length, "text")}:`)] : [];
    at("preview").replaceChildren(...rest, table(["Row", "Text", "Labels"], previews));
  } catch (error) {
    at("file-status").textContent = `Error: ${error.message}`;
  } finally {
    at("progress").hidden = true;
  }
}

function preview(number, text, labels) {
  const whole = typeof text === "string" ? text : Object.values(text).filter(Boolean).join(" — ");
  const list = element("ul");
  list.append(...labels.slice(0, SHOWN).map((label) => {
    const item = element("li");
    item.append(named(label), element("span", label.score.toFixed(3), "score"));
    return item;
  }));
  return [count(number), whole.length > 160 ? `${whole.slice(0, 160)} …` : whole, labels.length ? list : "none"];
}

opened.files = () => {
  const fields = model().fields;
  at("file-about").textContent = "Texts as CSV or TSV with a header, as JSON lines, or one on each line of a .txt file. "
    + (fields.length > 1 ? `This model reads ${fields.join(", ")}. ` : "")
    + "The results are a CSV file with a line for each label.";
  chooseColumns();
};

at("file").addEventListener("change", chooseFile);
at("file-form").addEventListener("submit", labelFile);
