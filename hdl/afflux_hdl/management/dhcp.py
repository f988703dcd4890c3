def add_dhcp(p):
    raise NotImplementedError
def start_dhcp(p):
    raise NotImplementedError
