"""How values appear in text and documents: quantities, figures, kinds, fields of documents."""
