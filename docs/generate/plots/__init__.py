"""The plots of the documents, drawn from the tables of the documents."""
