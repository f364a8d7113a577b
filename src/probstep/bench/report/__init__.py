"""Records as numbers, figures and one page: reads records and nothing else.

numbers/    what a cell, its value and its comparison with others are
figures/    what each figure shows
drawing/    how a figure becomes SVG, PNG and PDF
page/       tables, sentences and the page that holds everything
"""
