// Colors and names of the clusters of the map.

const GOLDEN_ANGLE = 137.508;  // neighboring numbers get distant colors

// `lightness` is a percentage, or the CSS variable that has it.
export function clusterColor(cluster, lightness) {
  if (cluster < 0) return `hsl(100 4% ${lightness})`;
  return `hsl(${Math.round(160 + GOLDEN_ANGLE * cluster) % 360} 62% ${lightness})`;
}

export function clusterName(cluster) {
  return cluster < 0 ? "In no cluster" : `Cluster ${cluster}`;
}
