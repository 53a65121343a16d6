// Many documents against one schema, by the JSON service that VS Code is built from.
// stdin: {"schema": text, "documents": {name: text}}; stdout: {name: [[line, message]]}
import { createRequire } from "node:module";

const { getLanguageService, TextDocument } = createRequire(import.meta.url)(
  "../node/node_modules/vscode-json-languageservice",
);

let text = "";
for await (const part of process.stdin) text += part;
const { schema, documents } = JSON.parse(text);
const service = getLanguageService({ schemaRequestService: async (uri) => Promise.reject(`not fetched: ${uri}`) });
const address = "memory://schema.json";
service.configure({ validate: true, schemas: [{ uri: address, fileMatch: ["*"], schema: JSON.parse(schema) }] });
const found = {};
for (const [name, content] of Object.entries(documents)) {
  const document = TextDocument.create(`memory://${encodeURIComponent(name)}`, "json", 1, content);
  const problems = await service.doValidation(document, service.parseJSONDocument(document));
  found[name] = problems.map((problem) => [problem.range.start.line + 1, problem.message]);
}
process.stdout.write(JSON.stringify(found));
