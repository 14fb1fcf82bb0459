"""The History Service, one file a flavour of its API.

tarsy_python        the calls and their errors
tarsy_python_shape  the answers as a Session
"""
