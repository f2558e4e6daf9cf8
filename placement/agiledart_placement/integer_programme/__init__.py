"""Optimal placement as an integer linear programme (ODP), solved by HiGHS. Needs the extra `placement` when it is called."""
