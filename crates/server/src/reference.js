// Shows openapi.json as a page. Everything is put in as text, never as markup.
'use strict';
const make = (name, text, ...children) => {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};
const nameOf = (ref) => ref.split('/').pop();
const kind = (schema) => {
  if (!schema) return '';
  if (schema.$ref) return nameOf(schema.$ref);
  const parts = schema.oneOf || schema.anyOf || schema.allOf;
  if (parts) return parts.map(kind).filter((text) => text !== 'null').join(schema.allOf ? ' & ' : ' | ');
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const type = [].concat(schema.type || 'any').filter((text) => text !== 'null').join(' | ');
  return type === 'array' ? `[${kind(schema.items)}]` : type;
};
const rows = (head, lines) => {
  const table = make('table');
  const first = make('tr');
  head.forEach((text) => first.append(make('th', text)));
  table.append(first);
  for (const cells of lines) {
    const row = make('tr');
    cells.forEach((text, index) => {
      const cell = make('td');
      cell.append(index === 0 || index === 1 ? make('code', text) : make('span', text));
      row.append(cell);
    });
    table.append(row);
  }
  return table;
};
const operation = (path, method, said) => {
  const details = make('details');
  details.id = said.operationId;
  const summary = make('summary', '', make('b', method.toUpperCase()), make('code', path));
  summary.append(make('span', said.summary));
  const body = make('div', '', make('p', said.description));
  if (said.parameters && said.parameters.length) {
    body.append(make('h4', 'Parameters'));
    body.append(rows(['name', 'type', ''], said.parameters.map((one) =>
      [`${one.name} (${one.in})`, kind(one.schema), one.description || ''])));
  }
  if (said.requestBody) {
    const [type, content] = Object.entries(said.requestBody.content)[0];
    body.append(make('h4', 'Body'), make('pre', `${type}: ${kind(content.schema)}`));
  }
  body.append(make('h4', 'Answers'));
  body.append(rows(['status', 'type', ''], Object.entries(said.responses).map(([status, one]) => {
    const content = Object.entries(one.content || {})[0];
    return [status, content ? kind(content[1].schema) : '', one.description || ''];
  })));
  details.append(summary, body);
  return details;
};
const schema = (name, said) => {
  const details = make('details');
  details.id = `schema-${name}`;
  details.append(make('summary', '', make('code', name), make('span', said.description || '')));
  const body = make('div');
  const properties = Object.entries(said.properties || {});
  if (properties.length) {
    body.append(rows(['field', 'type', ''], properties.map(([field, one]) =>
      [field, kind(one), one.description || ''])));
  } else {
    body.append(make('pre', JSON.stringify(said, null, 2)));
  }
  details.append(body);
  return details;
};
fetch('openapi.json').then((answer) => answer.json()).then((document_) => {
  const main = document.getElementById('main');
  main.textContent = '';
  const groups = new Map();
  for (const [path, item] of Object.entries(document_.paths)) {
    for (const [method, said] of Object.entries(item)) {
      const tag = (said.tags || ['other'])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(path, method, said));
    }
  }
  for (const [tag, operations] of groups) main.append(make('h2', tag), ...operations);
  main.append(make('h2', 'types'));
  const schemas = Object.entries(document_.components.schemas);
  for (const [name, said] of schemas) main.append(schema(name, said));
}).catch((error) => { document.getElementById('main').textContent = `It cannot be shown: ${error}`; });
