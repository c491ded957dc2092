"""What a browser says about the figures of a page."""

# A mark is a line or a point with a length, a bar, or the picture of a heat map.
FIGURES = """() => [...document.querySelectorAll('.plot')].map(plot => {
  const box = plot.getBoundingClientRect();
  const marks = [...plot.querySelectorAll('.scatterlayer path, .barlayer path, .heatmaplayer image')];
  const drawn = marks.filter(mark => mark.getBoundingClientRect().width + mark.getBoundingClientRect().height > 1);
  return {id: plot.id, width: box.width, height: box.height, right: box.right, marks: drawn.length};
})"""
