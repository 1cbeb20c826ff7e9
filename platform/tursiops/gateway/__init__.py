"""The one door: serves /v1 from a snapshot, passes everything else to the web process. Imports no Django."""
