/** A served name made from a model's: "SmolLM2 135M/Instruct" → "smollm2-135m-instruct" */
export function suggestedName(modelName: string): string {
  return modelName
    .toLowerCase()
    .replaceAll(/[^a-z0-9.]+/g, '-')
    .replaceAll(/^[^a-z0-9]+|[^a-z0-9]+$/g, '')
    .slice(0, 100)
}
